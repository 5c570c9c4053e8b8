import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { filePairStore } from "../../../src/certificates/pair-store.ts";
import { backedBySecret, copiedFrom, secretPairStore } from "../../../src/certificates/secret-store.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClient } from "../api/fake-client.ts";

const { signal } = new AbortController();

/** A Secret as stored by the API server. */
function secret() {
  const data: Record<string, string> = {};
  const client = fakeClient(({ verb, path, body }) => {
    assert.equal(path, "/api/v1/namespaces/edge/secrets/certificates");
    if (verb === "get") return { metadata: {}, data };
    for (const [key, value] of Object.entries((body as { data: Record<string, string | null> }).data))
      if (value === null) delete data[key];
      else data[key] = value;
    return {};
  });
  return { client, data };
}

const at = { namespace: "edge", secret: "certificates" };

test("keeps pairs of different names separate in one Secret; stores and removes a pending key", async () => {
  const { client, data } = secret();
  const [one, other] = ["a.kubelet-client", "b.kubelet-client"].map((name) => secretPairStore({ client, ...at, name }));
  assert.ok(one && other);
  assert.equal(await one.read(signal), undefined);
  const pair = await makeSelfSigned("a", [], 0);
  await one.write(pair, 0, signal);
  await one.storePendingKey(pair.key, signal);
  assert.equal((await one.read(signal))?.key, pair.key);
  assert.equal(await one.pendingKey(signal), pair.key);
  assert.equal(await other.read(signal), undefined);
  assert.deepEqual(Object.keys(data).sort(), ["a.kubelet-client.key", "a.kubelet-client.pem"]);
  await one.storePendingKey(undefined, signal);
  assert.equal(await one.pendingKey(signal), undefined);
});

test("uses a pair of the Secret as last seen, and otherwise reads the Secret", async () => {
  const { client, data } = secret();
  const pair = await makeSelfSigned("a", [], 0);
  let isSeen = false;
  const lastSeen = () =>
    isSeen ? { metadata: { name: "certificates", namespace: "edge", uid: "1" }, data } : undefined;
  const store = secretPairStore({ client, ...at, name: "a", lastSeen });
  await store.write(pair, 0, signal);
  client.calls.length = 0;
  assert.equal((await store.read(signal))?.key, pair.key);
  assert.equal(client.calls.length, 1);
  isSeen = true;
  assert.equal((await store.read(signal))?.key, pair.key);
  assert.equal(client.calls.length, 1);
});

test("describes a missing Secret in one sentence", async () => {
  const client = fakeClient(() => {
    throw new CodedError("not_found", "no");
  });
  await assert.rejects(secretPairStore({ client, ...at, name: "a" }).read(signal), {
    code: "not_found",
    message: 'certificateSecret "certificates" does not exist in namespace edge: create it, empty',
  });
});

test("copies a pair that only the former Secret has, once, and leaves it there", async () => {
  const [shared, kept] = [secret(), secret()];
  const former = secretPairStore({ client: shared.client, ...at, name: "a" });
  const own = secretPairStore({ client: kept.client, ...at, name: "a" });
  let copied = 0;
  const store = copiedFrom(
    former,
    own,
    () => 0,
    () => (copied += 1),
  );
  assert.equal(await store.read(signal), undefined);
  const pair = await makeSelfSigned("a", [], 0);
  await former.write(pair, 0, signal);
  await former.storePendingKey(pair.key, signal);
  assert.deepEqual([await store.read(signal), copied], [pair, 1]);
  // A key of a request that the former Secret still has would be used again for each request.
  assert.equal(await store.pendingKey(signal), undefined);
  assert.deepEqual(Object.keys(kept.data), ["a.pem"]);
  const next = await makeSelfSigned("a", [], 0);
  await store.write(next, 0, signal);
  assert.deepEqual([await store.read(signal), copied], [next, 1]);
  assert.equal((await former.read(signal))?.key, pair.key);
});

test("reads a pair of its own without the former Secret, which may be missing", async () => {
  const { client } = secret();
  const missing = fakeClient(() => {
    throw new CodedError("not_found", "no");
  });
  const former = secretPairStore({ client: missing, ...at, name: "a" });
  const store = copiedFrom(
    former,
    secretPairStore({ client, ...at, name: "a" }),
    () => 0,
    () => assert.fail("nothing was copied"),
  );
  assert.equal(await store.read(signal), undefined);
  const pair = await makeSelfSigned("a", [], 0);
  await store.write(pair, 0, signal);
  assert.equal((await store.read(signal))?.key, pair.key);
});

test("an unavailable former Secret is an error, so that no certificate is requested in place of the one there", async () => {
  const unavailable = fakeClient(() => {
    throw new CodedError("unavailable", "later");
  });
  const former = secretPairStore({ client: unavailable, ...at, name: "a" });
  const own = secretPairStore({ client: secret().client, ...at, name: "a" });
  const store = copiedFrom(
    former,
    own,
    () => 0,
    () => undefined,
  );
  await assert.rejects(store.read(signal), { code: "unavailable" });
});

test("writes a pair from the Secret to files that do not have it yet", async () => {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-secret-"));
  try {
    const kept = secretPairStore({ client: secret().client, ...at, name: "a" });
    const pair = await makeSelfSigned("a", [], 0);
    await kept.write(pair, 0, signal);
    const files = filePairStore(dir, "kubelet-client");
    const both = backedBySecret(files, kept, () => 0);
    assert.equal((await both.read(signal))?.key, pair.key);
    assert.equal((await files.read(signal))?.key, pair.key);
    const next = await makeSelfSigned("a", [], 0);
    await both.write(next, 1000, signal);
    assert.equal((await files.read(signal))?.key, next.key);
    assert.equal((await kept.read(signal))?.key, next.key);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
