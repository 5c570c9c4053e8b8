import assert from "node:assert/strict";
import { test } from "node:test";
import { formatDate, parseCertificate, validity } from "../../../../../providers/ssh/connection/certificate.ts";
import { isSignatureOf } from "../../../../../providers/ssh/connection/host-certificate.ts";
import { wireString } from "../../../../../providers/ssh/connection/wire-reader.ts";
import { certificateOf, forever, sshKey } from "../../../../harness/ssh-keys.ts";

const kinds = ["ed25519", "rsa", "P-256", "P-384", "P-521"] as const;
const keys = kinds.map((kind) => sshKey(kind));
const [key = sshKey("ed25519")] = keys;

test("parses certificates of each key type", () => {
  for (const certified of keys) {
    const blob = certificateOf(certified, key, { principals: ["a", "b"], after: 5n, before: 9n, critical: ["c"] });
    const certificate = parseCertificate(blob);
    assert.deepEqual([certificate.type, certificate.keyType], ["host", certified.type]);
    assert.deepEqual(certificate.key, certified.wire);
    assert.deepEqual(certificate.principals, ["a", "b"]);
    assert.deepEqual([certificate.validAfter, certificate.validBefore], [5n, 9n]);
    assert.deepEqual(certificate.criticalOptions, ["c"]);
    assert.deepEqual(certificate.authority, key.wire);
    assert.ok(isSignatureOf(certificate.authority, certificate.signed, certificate.signature));
  }
  assert.equal(parseCertificate(certificateOf(key, key, { type: "user" })).type, "user");
});

test("rejects truncated, extended and unknown certificates with a reason", () => {
  const blob = certificateOf(key, key, { principals: ["a", "b"], critical: ["c"] });
  for (let length = 0; length < blob.length; length += 1)
    assert.throws(() => parseCertificate(blob.subarray(0, length)), /^(Range)?Error: /, String(length));
  assert.throws(() => parseCertificate(Buffer.concat([blob, Buffer.from([0])])), /trailing bytes/);
  assert.throws(
    () => parseCertificate(certificateOf(key, key, { type: "neither" })),
    /neither a user nor a host certificate/,
  );
  assert.throws(() => parseCertificate(key.wire), /unsupported type "ssh-ed25519"/);
  for (const type of ["ssh-dss-cert-v01@openssh.com", "constructor-cert-v01@openssh.com", "", "x".repeat(5000)])
    assert.throws(() => parseCertificate(Buffer.concat([wireString(type), blob])), /unsupported type ".{0,60}"/);
});

test("rejects a length field beyond the end at any position", () => {
  const blob = certificateOf(key, key, { principals: ["a", "b"], critical: ["c"] });
  for (let at = 0; at + 4 <= blob.length; at += 1) {
    const wrong = Buffer.from(blob);
    wrong.writeUInt32BE(0xff_ff_ff_ff, at);
    try {
      const { authority, signed, signature } = parseCertificate(wrong);
      assert.ok(!isSignatureOf(key.wire, signed, signature) || !authority.equals(key.wire), String(at));
    } catch (error) {
      assert.ok(error instanceof Error);
    }
  }
});

test("no byte of a certificate can be changed undetected", () => {
  const blob = certificateOf(key, key);
  for (let at = 0; at < blob.length; at += 1) {
    const wrong = Buffer.from(blob);
    wrong[at] = (wrong[at] ?? 0) ^ 1;
    const passes = (() => {
      try {
        const { authority, signed, signature } = parseCertificate(wrong);
        return authority.equals(key.wire) && isSignatureOf(authority, signed, signature);
      } catch {
        return false;
      }
    })();
    assert.equal(passes, false, String(at));
  }
});

test("verifies signatures of each key type only with that type's algorithms, RSA only with SHA-2, and rejects malformed signatures", () => {
  const data = Buffer.from("data");
  for (const signer of keys) {
    for (let times = 0; times < 20; times += 1) assert.ok(isSignatureOf(signer.wire, data, signer.sign(data)));
    assert.ok(!isSignatureOf(signer.wire, Buffer.from("date"), signer.sign(data)));
    assert.ok(!isSignatureOf(sshKey("ed25519").wire, data, signer.sign(data)));
    const good = signer.sign(data);
    for (let length = 0; length < good.length; length += 1)
      assert.ok(!isSignatureOf(signer.wire, data, good.subarray(0, length)));
    assert.ok(!isSignatureOf(signer.wire, data, Buffer.concat([good, Buffer.from([0])])));
  }
  const [, rsa = key] = keys;
  assert.ok(isSignatureOf(rsa.wire, data, rsa.sign(data, "rsa-sha2-256")));
  assert.ok(!isSignatureOf(rsa.wire, data, rsa.sign(data, "ssh-rsa")));
  assert.ok(!isSignatureOf(key.wire, data, Buffer.concat([wireString("ssh-rsa"), wireString("x")])));
  assert.ok(!isSignatureOf(Buffer.from("no key"), data, key.sign(data)));
});

test("validAfter is inclusive, validBefore exclusive, and a certificate may be valid forever", () => {
  const of = (after: bigint, before: bigint) => parseCertificate(certificateOf(key, key, { after, before }));
  assert.deepEqual(
    [4_999, 5_000, 8_999, 9_000].map((now) => validity(of(5n, 9n), now)),
    ["early", "valid", "valid", "expired"],
  );
  assert.equal(validity(of(0n, forever), Date.UTC(9999, 0)), "valid");
  assert.equal(formatDate(9n), "1970-01-01T00:00:09.000Z");
  assert.match(formatDate(forever), /^\+275760/);
});
