import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fingerprintOf, hostKeyCheck, keyType } from "../../../../../providers/ssh/connection/host-key.ts";

/** A key in SSH's wire format, as far as its check looks into it. */
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

test("a key says what it is", () => {
  assert.equal(keyType(one), "ssh-ed25519");
  assert.match(fingerprintOf(one), /^SHA256:[A-Za-z0-9+/]{43}$/);
});

test("a known key is taken, another is a mismatch, a revoked one too, and the known type is asked for first", async () => {
  const file = `h ssh-rsa ${rsa.toString("base64")}\n@revoked h ssh-ed25519 ${other.toString("base64")}\n`;
  await withFile(file, async (path) => {
    const check = await hostKeyCheck({ by: "knownHosts", file: path }, "h", 22);
    assert.equal(check.refusal(rsa), undefined);
    assert.equal(check.refusal(one)?.reason, "HostKeyMismatch");
    assert.equal(check.refusal(other)?.reason, "HostKeyMismatch");
    assert.deepEqual(check.algorithms.slice(0, 2), ["rsa-sha2-512", "rsa-sha2-256"]);
    assert.ok(check.algorithms.includes("ssh-ed25519"));
  });
});

test("a host that is not in the file is unknown; so is every host without a file", async () => {
  await withFile("", async (path) => {
    const check = await hostKeyCheck({ by: "knownHosts", file: path }, "h", 22);
    const refusal = check.refusal(one);
    assert.equal(refusal?.reason, "HostKeyUnknown");
    assert.ok(refusal.message.includes(fingerprintOf(one)));
    await assert.rejects(hostKeyCheck({ by: "knownHosts", file: `${path}-none` }, "h", 22), {
      reason: "HostKeyUnknown",
    });
  });
});

test("the first key is kept once it has proved itself, and then it is the only one", async () => {
  await withFile("", async (path) => {
    const trust = { by: "firstUse", file: `${path}-new` } as const;
    const first = await hostKeyCheck(trust, "h", 2222);
    assert.equal(first.refusal(one), undefined);
    await assert.rejects(readFile(trust.file));
    await first.remember();
    assert.equal(await readFile(trust.file, "utf8"), `[h]:2222 ssh-ed25519 ${one.toString("base64")}\n`);
    const second = await hostKeyCheck(trust, "h", 2222);
    assert.equal(second.refusal(one), undefined);
    assert.equal(second.refusal(other)?.reason, "HostKeyMismatch");
  });
});

test("by fingerprint", async () => {
  const check = await hostKeyCheck({ by: "fingerprints", fingerprints: [fingerprintOf(one)] }, "h", 22);
  assert.equal(check.refusal(one), undefined);
  assert.equal(check.refusal(other)?.reason, "HostKeyMismatch");
});
