import assert from "node:assert/strict";
import { test } from "node:test";
import { clusterRoleOwner } from "../../../src/api/endpoint-slices.ts";
import { fakeClient } from "./fake-client.ts";

test("slices are owned by a ClusterRole, identified by its UID", async () => {
  const client = fakeClient(() => ({ metadata: { name: "a:b", uid: "u" } }));
  const owner = await clusterRoleOwner(client, "a:b", new AbortController().signal);
  assert.deepEqual(owner, { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", name: "a:b", uid: "u" });
  assert.deepEqual(
    client.calls.map(({ path }) => path),
    ["/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab"],
  );
});
