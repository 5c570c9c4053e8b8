import assert from "node:assert/strict";
import { test } from "node:test";
import { createAccessReview, readClusterClientCA } from "../../../src/api/access.ts";
import { apiError } from "../../../src/api/api-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { bodyOf, type Call, fakeClient } from "./fake-client.ts";

const { signal } = new AbortController();

function start(answer: (call: Call) => unknown) {
  const client = fakeClient(answer);
  const measures = unmeasured.reviews;
  return { client, review: createAccessReview({ client, clock: fakeClock(), nodeName: "n1", measures }) };
}

test("returns the token's user as authenticated by the API server", async () => {
  const user = { username: "jane", uid: "7", groups: ["devs"], extra: { scope: ["a"] } };
  const { review, client } = start(() => ({ status: { authenticated: true, user } }));
  assert.deepEqual(await review.byToken("secret", signal), {
    name: "jane",
    uid: "7",
    groups: ["devs"],
    extra: { scope: ["a"] },
  });
  assert.deepEqual(bodyOf<{ spec: object }>(client, 0).spec, { token: "secret" });
});

test("returns no user for an unauthenticated token", async () => {
  const { review } = start(() => ({ status: { authenticated: false, user: { username: "jane" }, error: "expired" } }));
  assert.equal(await review.byToken("secret", signal), undefined);
});

test("reviews access to the node's subresource; an explicit denial takes precedence", async () => {
  let status: object = { allowed: true };
  const { review, client } = start(() => ({ status }));
  const jane = { name: "jane", groups: ["devs"] };
  assert.equal(await review.allowed(jane, "create", "proxy", "/exec", signal), true);
  const { spec } = bodyOf<{ spec: { resourceAttributes: object; user: string } }>(client, 0);
  assert.equal(spec.user, "jane");
  assert.deepEqual(spec.resourceAttributes, {
    verb: "create",
    group: "",
    version: "v1",
    resource: "nodes",
    name: "n1",
    subresource: "proxy",
  });
  status = { allowed: false };
  assert.equal(await review.allowed(jane, "create", "proxy", "/exec", signal), false);
  status = { allowed: true, denied: true };
  assert.equal(await review.allowed(jane, "create", "proxy", "/exec", signal), false);
});

test("reads the cluster's client CA if the cluster publishes it", async () => {
  assert.equal(
    await readClusterClientCA(
      fakeClient(() => ({ data: { "client-ca-file": "PEM" } })),
      signal,
    ),
    "PEM",
  );
  const missing = fakeClient(() => {
    throw apiError(404, "");
  });
  assert.equal(await readClusterClientCA(missing, signal), undefined);
  const refused = fakeClient(() => {
    throw apiError(403, "");
  });
  await assert.rejects(readClusterClientCA(refused, signal), { code: "permission_denied" });
});
