import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { type ServingCertificateOptions, createServingCertificate } from "../../../src/certificates/serving.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";

const log = silentLog();
const dayMs = 24 * 3600 * 1000;

interface Place extends AsyncDisposable {
  readonly dir: string;
  readonly clock: FakeClock;
  make(more?: Partial<ServingCertificateOptions>): ReturnType<typeof createServingCertificate>;
}

async function place(): Promise<Place> {
  const dir = await mkdtemp(join(tmpdir(), "graftlet-pki-"));
  const clock = fakeClock();
  return {
    dir,
    clock,
    make: (more = {}) =>
      createServingCertificate({
        certDir: join(dir, "pki"),
        nodeName: "node",
        addresses: ["10.0.0.1", "fd00::1"],
        clock,
        log,
        ...more,
      }),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}

test("creates a self-signed pair for the node's name and addresses, valid for one year and readable only by its owner", async () => {
  await using at = await place();
  const { certificate, key } = (await at.make()).current();
  const parsed = new X509Certificate(certificate);
  assert.equal(parsed.subjectAltName, "DNS:node, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:0:1");
  assert.deepEqual(parsed.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
  assert.equal(parsed.publicKey.asymmetricKeyDetails?.namedCurve, "prime256v1");
  assert.equal(parsed.ca, false);
  assert.equal(parsed.validToDate.getTime() - at.clock.now(), 365 * dayMs);
  assert.ok(parsed.validFromDate.getTime() < at.clock.now());
  assert.equal(await readFile(join(at.dir, "pki/kubelet.crt"), "utf8"), certificate);
  assert.equal(await readFile(join(at.dir, "pki/kubelet.key"), "utf8"), key);
  assert.equal((await stat(join(at.dir, "pki/kubelet.key"))).mode & 0o777, 0o600);
});

test("keeps the self-signed pair while it is valid, then creates a new one", async () => {
  await using at = await place();
  const first = (await at.make()).current();
  assert.deepEqual((await at.make()).current(), first);
  await writeFile(join(at.dir, "pki/kubelet.key"), (await makeSelfSigned("other", [], at.clock.now())).key);
  const second = (await at.make()).current();
  assert.notEqual(second.certificate, first.certificate);
  await writeFile(join(at.dir, "pki/kubelet.crt"), "torn");
  const third = (await at.make()).current();
  assert.notEqual(third.certificate, second.certificate);
  await at.clock.advance(365 * dayMs);
  const fourth = (await at.make()).current();
  assert.notEqual(fourth.certificate, third.certificate);
  assert.deepEqual((await at.make()).current(), fourth);
});

test("reloads configured files when they change, and ignores a mismatched pair", async () => {
  await using at = await place();
  const [certFile, keyFile] = [join(at.dir, "tls.crt"), join(at.dir, "tls.key")];
  const write = async ({ certificate, key }: { certificate: string; key: string }) => {
    await writeFile(keyFile, key);
    await writeFile(certFile, certificate);
  };
  const [old, fresh] = [
    await makeSelfSigned("old", [], at.clock.now()),
    await makeSelfSigned("fresh", [], at.clock.now()),
  ];
  await write(old);
  const serving = await at.make({ certFile, keyFile });
  assert.deepEqual(serving.current(), old);
  const changed = Promise.withResolvers<void>();
  const told = { changes: 0 };
  serving.onChange(() => {
    told.changes++;
    changed.resolve();
  });
  const stop = new AbortController();
  const done = serving.run(stop.signal);
  await writeFile(keyFile, fresh.key);
  for (let minute = 0; minute < 3; minute++) await passMinute(at.clock);
  assert.deepEqual([serving.current(), told.changes], [old, 0]);
  await write(fresh);
  for (let minute = 0; minute < 50 && told.changes === 0; minute++) await passMinute(at.clock);
  await changed.promise;
  assert.deepEqual([serving.current(), told.changes], [fresh, 1]);
  stop.abort();
  await done;
});

/** Advances a minute, with enough turns for files to be read. */
async function passMinute(clock: FakeClock): Promise<void> {
  await clock.advance(60_000);
  for (let turn = 0; turn < 20; turn++) await clock.advance(0);
}

test("describes unusable files in one sentence that names the field", async () => {
  await using at = await place();
  const [certFile, keyFile] = [join(at.dir, "none.crt"), join(at.dir, "none.key")];
  await assert.rejects(at.make({ certFile }), {
    code: "invalid_argument",
    message: /^tlsCertFile ".*none\.crt" is set without tlsPrivateKeyFile: set both/,
  });
  await assert.rejects(at.make({ keyFile }), {
    code: "invalid_argument",
    message: /^tlsPrivateKeyFile ".*none\.key" is set without tlsCertFile/,
  });
  await assert.rejects(at.make({ certFile, keyFile }), {
    code: "invalid_argument",
    message: /^tlsCertFile ".*none\.crt" with tlsPrivateKeyFile .* cannot be used/,
  });
  await writeFile(certFile, (await makeSelfSigned("a", [], at.clock.now())).certificate);
  await writeFile(keyFile, (await makeSelfSigned("b", [], at.clock.now())).key);
  await assert.rejects(at.make({ certFile, keyFile }), { message: /the key does not match the certificate/ });
  await writeFile(join(at.dir, "file"), "");
  await assert.rejects(at.make({ certDir: join(at.dir, "file") }), {
    code: "permission_denied",
    message: /^cert-dir ".*file" is not writable/,
  });
});
