import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type IssuedOptions, createIssuedCertificate } from "../../../src/certificates/issued.ts";
import { type PairStore, filePairStore } from "../../../src/certificates/pair-store.ts";
import type { KeyPair } from "../../../src/certificates/self-signed.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { settle, silent } from "../api/fake-client.ts";
import { fakeSigner, read, type Signer } from "./signer.ts";

const hourMs = 3_600_000;
const subject = { commonName: "system:node:far", organization: "system:nodes", names: ["far", "10.0.0.7"] };

interface Place extends AsyncDisposable {
  readonly dir: string;
  readonly clock: FakeClock;
  readonly signer: Signer;
  /** Number of failures, and ages of replaced certificates. */
  readonly measured: { failures: number; readonly agesMs: number[] };
  start(more?: Partial<IssuedOptions>): Promise<Running>;
}
interface Running {
  readonly certificate: Awaited<ReturnType<typeof createIssuedCertificate>>;
  stop(): Promise<void>;
}

async function place(refuse?: () => Error | undefined): Promise<Place> {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-issued-"));
  const clock = fakeClock();
  const signer = await fakeSigner(refuse);
  const started: Running[] = [];
  const store = memoryStore();
  const measured = { failures: 0, agesMs: [] as number[] };
  const measures = {
    failed: () => void (measured.failures += 1),
    replaced: (ageMs: number) => void measured.agesMs.push(ageMs),
  };
  return {
    dir,
    clock,
    signer,
    measured,
    async start(more = {}) {
      const signal = AbortSignal.timeout(20_000);
      const certificate = await createIssuedCertificate(
        {
          name: "kubelet-server",
          signerName: "kubernetes.io/kubelet-serving",
          usage: "server auth",
          subject: () => subject,
          store,
          client: signer.client,
          measures,
          clock,
          log: silent,
          ...more,
        },
        signal,
      );
      const over = new AbortController();
      const running = certificate.run(over.signal);
      const stop = async () => {
        over.abort();
        await running;
      };
      const one = { certificate, stop };
      started.push(one);
      return one;
    },
    async [Symbol.asyncDispose]() {
      for (const one of started) await one.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

/** Waits for work that takes several turns of the event loop: keys are generated in a thread. */
async function until<T>(what: () => T | undefined | false): Promise<T> {
  const began = performance.now();
  while (performance.now() - began < 10_000) {
    const found = what();
    if (found) return found;
    await settle();
  }
  assert.fail(`never: ${what.toString()}`);
}

/** A store in memory. */
function memoryStore(): PairStore {
  let pair: KeyPair | undefined;
  let pending: string | undefined;
  return {
    read: () => Promise.resolve(pair),
    async write(next) {
      pair = await Promise.resolve(next);
    },
    pendingKey: () => Promise.resolve(pending),
    async storePendingKey(key) {
      pending = await Promise.resolve(key);
    },
  };
}

const names = ({ requests }: Signer) => [...requests.keys()];

test("requests, awaits and stores a certificate, and reuses it at the next start", async () => {
  await using at = await place();
  const store = filePairStore(at.dir, "kubelet-server");
  const { certificate, stop } = await at.start({ store });
  const waiting = await until(() => certificate.waiting());
  const request = at.signer.requests.get(waiting);
  assert.match(waiting, /^node-csr-[0-9a-f]{40}$/);
  assert.equal(request?.spec.signerName, "kubernetes.io/kubelet-serving");
  assert.deepEqual(request?.spec.usages, ["digital signature", "server auth"]);
  await at.signer.approve(waiting, at.clock.now() - 1000, hourMs);
  const { certificate: pem } = await until(() => certificate.current());
  assert.equal(read(pem).subject, "O=system:nodes\nCN=system:node:far");
  assert.equal(read(pem).subjectAltName, "DNS:far, IP Address:10.0.0.7");
  await until(() => certificate.waiting() === undefined);
  await stop();
  const current = readdirSync(at.dir).sort();
  assert.deepEqual(current, ["kubelet-server-2026-01-01-00-00-00.pem", "kubelet-server-current.pem"]);
  assert.equal(statSync(join(at.dir, current[0] ?? "")).mode & 0o777, 0o600);

  const again = await at.start({ store });
  assert.equal(again.certificate.current()?.certificate, pem);
  await settle();
  assert.equal(at.signer.requests.size, 1);
});

test("approves its own valid requests if permitted, but not invalid ones", async () => {
  await using at = await place();
  const approved = new Set<string>();
  const { certificate, stop } = await at.start({
    async approve({ metadata: { name } }) {
      approved.add(name);
      await at.signer.approve(name, at.clock.now(), 10 * hourMs);
    },
  });
  const first = await until(() => certificate.current());
  await until(() => certificate.waiting() === undefined);
  await at.clock.advance(7 * hourMs);
  await until(() => certificate.current() !== first);
  assert.deepEqual([...approved], names(at.signer));
  assert.equal(approved.size, 2);
  await stop();

  const moved = { ...subject, names: ["far", "10.0.0.8"] };
  let left = 0;
  const second = await at.start({ subject: () => moved, approve: () => Promise.resolve(void (left += 1)) });
  await until(() => second.certificate.waiting() && left > 0);
  assert.equal(second.certificate.current(), undefined);
});

test("renews at 70 % of the lifetime with a new key, and uses the old one until then", async () => {
  await using at = await place();
  const { certificate } = await at.start();
  await at.signer.approve(await until(() => certificate.waiting()), at.clock.now(), 10 * hourMs);
  const first = await until(() => certificate.current());
  await until(() => certificate.waiting() === undefined);
  let changes = 0;
  certificate.onChange(() => (changes += 1));
  await at.clock.advance(7 * hourMs - 60_000);
  assert.equal(names(at.signer).length, 1);
  await at.clock.advance(60_000);
  const second = await until(() => certificate.waiting());
  assert.equal(certificate.current(), first);
  await at.signer.approve(second, at.clock.now(), 10 * hourMs);
  await until(() => changes === 1);
  const renewed = certificate.current();
  assert.notEqual(renewed?.key, first.key);
  assert.notEqual(renewed?.certificate, first.certificate);
  assert.deepEqual(at.measured, { failures: 0, agesMs: [7 * hourMs] });
});

test("stops using an expired certificate, and logs that it has expired", async () => {
  await using at = await place();
  const { certificate } = await at.start();
  await at.signer.approve(await until(() => certificate.waiting()), at.clock.now(), hourMs);
  await until(() => certificate.current());
  await until(() => certificate.waiting() === undefined);
  let changes = 0;
  certificate.onChange(() => (changes += 1));
  await at.clock.advance(hourMs * 0.7);
  await until(() => certificate.waiting());
  assert.ok(certificate.current());
  // The next check follows the timeout of a request.
  for (let spans = 0; spans < 3; spans += 1) {
    const request = await until(() => certificate.waiting());
    await at.clock.advance(15 * 60_000);
    await until(() => certificate.waiting() !== request);
    await at.clock.advance(32_000);
  }
  assert.deepEqual([certificate.current(), changes], [undefined, 1]);
});

test("renews a certificate with wrong names immediately", async () => {
  await using at = await place();
  const one = await at.start();
  await at.signer.approve(await until(() => one.certificate.waiting()), at.clock.now(), 10 * hourMs);
  await until(() => one.certificate.current() && !one.certificate.waiting());
  await one.stop();
  const moved = { ...subject, names: ["far", "10.0.0.8"] };
  const { certificate } = await at.start({ subject: () => moved });
  assert.equal(certificate.current(), undefined);
  await until(() => certificate.waiting());
  assert.equal(at.signer.requests.size, 2);
});

test("continues to wait for its pending request after a restart", async () => {
  await using at = await place();
  const one = await at.start();
  const name = await until(() => one.certificate.waiting());
  await one.stop();
  const { certificate } = await at.start();
  assert.equal(await until(() => certificate.waiting()), name);
  assert.equal(at.signer.requests.size, 1);
  await at.signer.approve(name, at.clock.now(), hourMs);
  await until(() => certificate.current());
});

test("sends a new request with a new key after it is denied or deleted, or not approved for 15 minutes", async () => {
  await using at = await place();
  const { certificate } = await at.start();
  const first = await until(() => certificate.waiting());
  at.signer.deny(first);
  await until(() => certificate.waiting() === undefined);
  await at.clock.advance(2_000);
  const second = await until(() => certificate.waiting());
  at.signer.remove(second);
  await until(() => certificate.waiting() === undefined);
  await at.clock.advance(4_000);
  const third = await until(() => certificate.waiting());
  await at.clock.advance(15 * 60_000);
  await until(() => certificate.waiting() !== third);
  await at.clock.advance(8_000);
  const fourth = await until(() => certificate.waiting());
  assert.equal(new Set([first, second, third, fourth]).size, 4);
  assert.deepEqual(at.measured, { failures: 3, agesMs: [] });
});

test("retries refused requests with delays of up to 32 s", async () => {
  let refusals = 0;
  await using at = await place(() => {
    refusals += 1;
    return new CodedError("unavailable", "no answer");
  });
  const { certificate } = await at.start();
  await until(() => refusals === 1);
  for (const [index, pauseMs] of [2_000, 4_000, 8_000, 16_000, 32_000, 32_000].entries()) {
    // A timeout for each request so far, and the delay.
    await until(() => at.clock.pending === index + 2);
    await at.clock.advance(pauseMs - 1);
    assert.equal(refusals, index + 1);
    await at.clock.advance(1);
    await until(() => refusals === index + 2);
  }
  assert.equal(certificate.current(), undefined);
});
