import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { certificateName } from "../../../../../providers/ssh/connection/key-algorithms.ts";
import { readUserCertificate } from "../../../../../providers/ssh/connection/user-certificate.ts";
import { type CertificateOptions, type SshKey, certificateOf, sshKey } from "../../../../harness/ssh-keys.ts";

const key = sshKey("ed25519");
const authority = sshKey("P-256");
const lineOf = (certified: SshKey, options: CertificateOptions = {}) =>
  `${certificateName(certified.type)} ${certificateOf(certified, authority, { type: "user", ...options }).toString("base64")}`;

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "graftlet-user-certificate-"));
});
after(() => rm(folder, { recursive: true }));

/** Reads it at the 100th second. */
async function reading(text: string) {
  const path = join(folder, "key-cert.pub");
  await writeFile(path, text);
  return readUserCertificate(path, key.wire, 100_000);
}

test("a certificate is read as ssh-keygen writes it, with a comment or none", async () => {
  const line = lineOf(key);
  for (const text of [line, `${line} me@here\n`, `\n${line}\r\n`]) {
    const { blob, keyType } = await reading(text);
    assert.equal(keyType, "ssh-ed25519");
    assert.equal(blob.toString("base64"), line.split(" ")[1]);
  }
});

const unusable: readonly (readonly [what: string, text: string, sentence: RegExp])[] = [
  ["nothing", "", /is no OpenSSH certificate \(it ends too early\): name the file KEY-cert\.pub/],
  ["a key", `${key.type} ${key.wire.toString("base64")}`, /is no OpenSSH certificate \(its type "ssh-ed25519" is none/],
  ["half of one", lineOf(key).slice(0, 200), /is no OpenSSH certificate \(it ends too early\)/],
  ["one under another type", lineOf(key).replace(/^\S+/, "ssh-ed25519"), /its first word is not its type/],
  ["a host's", lineOf(key, { type: "host" }), /is a host's certificate: ask its authority for a user's/],
  ["another key's", lineOf(authority), /certifies the key SHA256:\S+, and privateKeyFile is SHA256:/],
  ["one that is over", lineOf(key, { before: 100n }), /expired at 1970-01-01T00:01:40\.000Z: put a new certificate/],
  ["one that is to come", lineOf(key, { after: 101n }), /is not valid before 1970-01-01T00:01:41\.000Z: check/],
];

for (const [what, text, sentence] of unusable)
  test(`${what} is refused in one sentence`, async () => {
    await assert.rejects(reading(text), (error: Error) => {
      assert.match(error.message, /^providerConfig\.certificateFile: \S+key-cert\.pub [^\n]+\.$/);
      assert.match(error.message, sentence);
      return true;
    });
  });

test("a file that is not there is named", async () => {
  const path = join(folder, "none");
  await assert.rejects(readUserCertificate(path, key.wire, 0), {
    code: "not_found",
    message: /^providerConfig\.certificateFile cannot be read: ENOENT/,
  });
});
