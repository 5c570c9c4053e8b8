import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { certificateOf, sshKey } from "../../../../harness/ssh-keys.ts";
import { fingerprintOf, keyType } from "../../../../../providers/ssh/connection/fingerprint.ts";
import { hostKeyCheck } from "../../../../../providers/ssh/connection/host-key.ts";

/** A key in SSH's wire format, with the parts that its check reads. */
function keyOf(type: string, body: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(type.length);
  return Buffer.concat([length, Buffer.from(type), Buffer.from(body)]);
}

const one = keyOf("ssh-ed25519", "one");
const other = keyOf("ssh-ed25519", "other");
const rsa = keyOf("ssh-rsa", "rsa");

async function withFile(text: string, use: (file: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-known-hosts-"));
  try {
    const file = join(folder, "known_hosts");
    await writeFile(file, text);
    await use(file);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("returns the type and the fingerprint of a key", () => {
  assert.equal(keyType(one), "ssh-ed25519");
  assert.match(fingerprintOf(one), /^SHA256:[A-Za-z0-9+/]{43}$/);
});

test("accepts a known key, reports other and revoked keys as a mismatch, and offers the known key's type first", async () => {
  const file = `h ssh-rsa ${rsa.toString("base64")}\n@revoked h ssh-ed25519 ${other.toString("base64")}\n`;
  await withFile(file, async (path) => {
    const check = await hostKeyCheck({ kind: "knownHosts", file: path }, { host: "h", port: 22 }, Date.now);
    assert.equal(check.refusal(rsa), undefined);
    assert.equal(check.refusal(one)?.reason, "HostKeyMismatch");
    assert.equal(check.refusal(other)?.reason, "HostKeyMismatch");
    assert.deepEqual(check.algorithms.slice(0, 2), ["rsa-sha2-512", "rsa-sha2-256"]);
    assert.ok(check.algorithms.includes("ssh-ed25519"));
  });
});

test("reports HostKeyUnknown for a host that is not in the file, or if there is no file", async () => {
  await withFile("", async (path) => {
    const check = await hostKeyCheck({ kind: "knownHosts", file: path }, { host: "h", port: 22 }, Date.now);
    const refusal = check.refusal(one);
    assert.equal(refusal?.reason, "HostKeyUnknown");
    assert.ok(refusal.message.includes(fingerprintOf(one)));
    await assert.rejects(
      hostKeyCheck({ kind: "knownHosts", file: `${path}-none` }, { host: "h", port: 22 }, Date.now),
      {
        reason: "HostKeyUnknown",
      },
    );
  });
});

test("with trust on first use, saves the first key after the login and accepts only that key from then on", async () => {
  await withFile("", async (path) => {
    const trust = { kind: "firstUse", file: `${path}-new` } as const;
    const first = await hostKeyCheck(trust, { host: "h", port: 2222 }, Date.now);
    assert.equal(first.refusal(one), undefined);
    await assert.rejects(readFile(trust.file));
    await first.saveFirstKey();
    assert.equal(await readFile(trust.file, "utf8"), `[h]:2222 ssh-ed25519 ${one.toString("base64")}\n`);
    const second = await hostKeyCheck(trust, { host: "h", port: 2222 }, Date.now);
    assert.equal(second.refusal(one), undefined);
    assert.equal(second.refusal(other)?.reason, "HostKeyMismatch");
  });
});

test("accepts keys by fingerprint", async () => {
  const check = await hostKeyCheck(
    { kind: "fingerprints", fingerprints: [fingerprintOf(one)], authorities: [] },
    { host: "h", port: 22 },
    Date.now,
  );
  assert.equal(check.refusal(one), undefined);
  assert.equal(check.refusal(other)?.reason, "HostKeyMismatch");
});

test("offers certificate algorithms, before plain ones, only if an authority is trusted", async () => {
  await withFile(`h ssh-rsa ${rsa.toString("base64")}`, async (path) => {
    const check = await hostKeyCheck({ kind: "knownHosts", file: path }, { host: "h", port: 22 }, Date.now);
    assert.deepEqual(check.certificateAlgorithms, []);
    assert.match(
      check.refusal(certificateOf(key, authority))?.message ?? "",
      /its authority SHA256:\S+ is not trusted/,
    );
  });
  await withFile(`@cert-authority h ${lineOf(authority)}\nh ssh-rsa ${rsa.toString("base64")}`, async (path) => {
    const check = await hostKeyCheck({ kind: "knownHosts", file: path }, { host: "h", port: 22 }, Date.now);
    assert.equal(check.certificateAlgorithms[0], "rsa-sha2-512-cert-v01@openssh.com");
    assert.equal(check.certificateAlgorithms.length, check.algorithms.length);
    assert.equal(check.refusal(rsa), undefined);
    assert.equal(check.refusal(one)?.reason, "HostKeyMismatch");
  });
});

const key = sshKey("P-256");
const authority = sshKey("ed25519");
const lineOf = ({ type, wire }: { type: string; wire: Buffer }) => `${type} ${wire.toString("base64")}`;
const rsaAuthority = sshKey("rsa");
const atSecond = (second: number) => () => second * 1000;

function changed(blob: Buffer): Buffer {
  blob[blob.length - 1] = (blob.at(-1) ?? 0) ^ 1;
  return blob;
}

const certificates: readonly (readonly [what: string, blob: Buffer, refusal: RegExp | undefined])[] = [
  ["that is valid", certificateOf(key, authority), undefined],
  ["from an RSA authority", certificateOf(key, rsaAuthority), undefined],
  [
    "from an RSA authority, with SHA-1",
    certificateOf(key, rsaAuthority, { algorithm: "ssh-rsa" }),
    /signature is invalid/,
  ],
  ["with several names", certificateOf(key, authority, { principals: ["other", "h.example"] }), undefined],
  ["with a pattern", certificateOf(key, authority, { principals: ["*.example", "*"] }), /it is for \*\.example, \*: /],
  [
    "for another host",
    certificateOf(key, authority, { principals: ["example", "h.example.org"] }),
    /it is for example, h/,
  ],
  ["without names", certificateOf(key, authority, { principals: [] }), /it names no host/],
  ["from another authority", certificateOf(key, key), /is not trusted for this host/],
  ["that is a user certificate", certificateOf(key, authority, { type: "user" }), /it is a user certificate/],
  [
    "with a critical option",
    certificateOf(key, authority, { critical: ["force-command"] }),
    /critical option "force-command"/,
  ],
  ["that has expired", certificateOf(key, authority, { before: 100n }), /it expired at 1970-01-01T00:01:40/],
  ["that is not yet valid", certificateOf(key, authority, { after: 101n }), /not valid before 1970-01-01T00:01:41/],
  ["that was modified", changed(certificateOf(key, authority)), /signature is invalid/],
  ["that is truncated", certificateOf(key, authority).subarray(0, -1), /cannot be read: unexpected end of data/],
];

for (const [what, blob, refusal] of certificates)
  test(`${refusal ? "rejects" : "accepts"} a host certificate ${what}`, async () => {
    const trust = {
      kind: "fingerprints",
      fingerprints: [],
      authorities: [authority, rsaAuthority].map(({ wire }) => fingerprintOf(wire)),
    } as const;
    const check = await hostKeyCheck(trust, { host: "H.example", port: 2222 }, atSecond(100));
    const why = check.refusal(blob);
    if (!refusal) return assert.equal(why, undefined);
    assert.equal(why?.reason, "HostKeyUnknown");
    assert.match(why.message, /^\[h\.example\]:2222 presented an untrusted certificate: /);
    assert.match(why.message, refusal);
  });

test("accepts the same certificate again after it expires on the same connection, but no other expired certificate", async () => {
  let second = 99;
  await withFile(`@cert-authority *.example ${lineOf(authority)}`, async (file) => {
    const where = { host: "h.example", port: 22 };
    const check = await hostKeyCheck({ kind: "knownHosts", file }, where, () => second * 1000);
    const blob = certificateOf(key, authority, { before: 100n });
    assert.equal(check.refusal(blob), undefined);
    second = 100;
    assert.equal(check.refusal(blob), undefined);
    assert.match(check.refusal(certificateOf(another, authority, { before: 100n }))?.message ?? "", /it expired/);
  });
});

const another = sshKey("ed25519");

test("rejects revoked keys and authorities, needs no certificate for a known key, and rejects an unknown plain key if an authority is known", async () => {
  const of = async (...lines: readonly string[]) => {
    let verdict: string | undefined;
    await withFile(lines.join("\n"), async (file) => {
      const check = await hostKeyCheck({ kind: "firstUse", file }, { host: "h.example", port: 22 }, Date.now);
      verdict = check.refusal(certificateOf(key, authority))?.message;
      assert.match(check.refusal(another.wire)?.message ?? "", /which is not the one in|without a certificate/);
      await check.saveFirstKey();
      assert.equal(await readFile(file, "utf8"), lines.join("\n"));
    });
    return verdict ?? "taken";
  };
  const trusted = `@cert-authority * ${lineOf(authority)}`;
  assert.equal(await of(trusted), "taken");
  assert.match(await of(trusted, `@revoked * ${lineOf(key)}`), /is revoked/);
  assert.match(await of(trusted, `@revoked * ${lineOf(authority)}`, `h.example ${lineOf(key)}`), /is revoked/);
  assert.equal(await of(`@cert-authority * ${lineOf(rsaAuthority)}`, `h.example ${lineOf(key)}`), "taken");
  assert.match(
    await of(`@cert-authority *,!h.example ${lineOf(authority)}`, `h.example ${lineOf(rsaAuthority)}`),
    /is not trusted for this host/,
  );
});
