import assert from "node:assert/strict";
import { test } from "node:test";
import {
  envelopeOf,
  isSigned,
  newKey,
  signatureOf,
  signingPayload,
  statementIn,
} from "../../../tools/release/signing.ts";
import { attachedTag } from "../../../tools/release/attached.ts";
import { provenanceOf } from "../../../tools/release/statements.ts";

const digest = `sha256:${"a".repeat(64)}`;

test("a signature is valid for one digest and one key only", () => {
  const key = newKey();
  const payload = signingPayload("ghcr.io/graftlet/graftlet", digest);
  const signature = signatureOf(payload, key);
  assert.equal(isSigned(payload, signature, key.publicPem), true);
  assert.equal(isSigned(payload.replace("aaa", "aab"), signature, key.publicPem), false);
  assert.equal(isSigned(payload, signature, newKey().publicPem), false);
  assert.equal(attachedTag(digest, "sig"), `sha256-${"a".repeat(64)}.sig`);
});

test("opens an attestation only if the key is right and the attestation is unmodified", () => {
  const key = newKey();
  const source = { version: "0.1.0", revision: "c".repeat(40), date: 0, notes: "" };
  const statement = provenanceOf([{ name: "a", sha256: "a".repeat(64) }], source, "https://localhost/test");
  const envelope = envelopeOf(statement, key);
  assert.deepEqual(statementIn(envelope, key.publicPem), statement);
  assert.throws(() => statementIn(envelope, newKey().publicPem), /is not signed by the release's key/);
  const other = Buffer.from(JSON.stringify({ ...statement, subject: [] })).toString("base64");
  assert.throws(() => statementIn({ ...envelope, payload: other }, key.publicPem), /is not signed/);
  assert.throws(() => statementIn({ ...envelope, payloadType: "text/plain" }, key.publicPem), /is not signed/);
});

test("provenance names the commit, the artifacts and the builder", () => {
  const source = { version: "0.1.0", revision: "c".repeat(40), date: 0, notes: "" };
  const { subject, predicateType, predicate } = provenanceOf(
    [{ name: "a.tar.gz", sha256: "b".repeat(64) }],
    source,
    "https://x/y",
  );
  assert.deepEqual(subject, [{ name: "a.tar.gz", digest: { sha256: "b".repeat(64) } }]);
  assert.equal(predicateType, "https://slsa.dev/provenance/v1");
  const { buildDefinition, runDetails } = predicate as {
    buildDefinition: { resolvedDependencies: object[] };
    runDetails: object;
  };
  assert.deepEqual(buildDefinition.resolvedDependencies, [
    { uri: "git+https://github.com/graftlet/graftlet", digest: { gitCommit: "c".repeat(40) } },
  ]);
  assert.deepEqual(runDetails, { builder: { id: "https://x/y" } });
});
