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

/** Reads a certificate at the 100th second of the epoch. */
async function reading(text: string) {
  const path = join(folder, "key-cert.pub");
  await writeFile(path, text);
  return readUserCertificate(path, key.wire, 100_000);
}

test("reads a certificate as written by ssh-keygen, with and without a comment", async () => {
  const line = lineOf(key);
  for (const text of [line, `${line} me@here\n`, `\n${line}\r\n`]) {
    const { blob, keyType } = await reading(text);
    assert.equal(keyType, "ssh-ed25519");
    assert.equal(blob.toString("base64"), line.split(" ")[1]);
  }
});

const unusable: readonly (readonly [what: string, text: string, sentence: RegExp])[] = [
  ["an empty file", "", /is not an OpenSSH certificate \(unexpected end of data\): set it to the KEY-cert\.pub/],
  [
    "a key",
    `${key.type} ${key.wire.toString("base64")}`,
    /is not an OpenSSH certificate \(unsupported type "ssh-ed25519"/,
  ],
  ["half a certificate", lineOf(key).slice(0, 200), /is not an OpenSSH certificate \(unexpected end of data\)/],
  [
    "a certificate labelled with another type",
    lineOf(key).replace(/^\S+/, "ssh-ed25519"),
    /the first word of the file is not the certificate's type/,
  ],
  [
    "a host certificate",
    lineOf(key, { type: "host" }),
    /is a host certificate: ask its authority for a user certificate/,
  ],
  ["another key's certificate", lineOf(authority), /certifies the key SHA256:\S+, but privateKeyFile has SHA256:/],
  [
    "an expired certificate",
    lineOf(key, { before: 100n }),
    /expired at 1970-01-01T00:01:40\.000Z: put a new certificate/,
  ],
  [
    "a certificate that is not yet valid",
    lineOf(key, { after: 101n }),
    /is not valid before 1970-01-01T00:01:41\.000Z: check/,
  ],
];

for (const [what, text, sentence] of unusable)
  test(`rejects ${what} in one sentence`, async () => {
    await assert.rejects(reading(text), (error: Error) => {
      assert.match(error.message, /^providerConfig\.certificateFile: \S+key-cert\.pub [^\n]+\.$/);
      assert.match(error.message, sentence);
      return true;
    });
  });

test("reports a missing file by its field", async () => {
  const path = join(folder, "none");
  await assert.rejects(readUserCertificate(path, key.wire, 0), {
    code: "not_found",
    message: /^providerConfig\.certificateFile cannot be read: ENOENT/,
  });
});
