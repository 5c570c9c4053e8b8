import assert from "node:assert/strict";
import { test } from "node:test";
import { deletePod } from "../../../src/api/pod-deletion.ts";
import { CodedError, type ErrorCode } from "../../../src/lib/errors.ts";
import { never } from "../../fakes/signals.ts";

const pod = { namespace: "ns", name: "p", uid: "uid-1" };

test("deletes a pod by UID with its own grace period", async () => {
  const calls: unknown[] = [];
  const client = { delete: async (...call: readonly unknown[]) => void calls.push(call.slice(0, 2)) };
  await deletePod(client, pod, {}, never);
  assert.deepEqual(calls, [["/api/v1/namespaces/ns/pods/p", { preconditions: { uid: "uid-1" } }]]);
});

test("ignores a pod that is gone or was replaced, and reports other failures", async () => {
  const deleting = (code: ErrorCode) =>
    deletePod({ delete: () => Promise.reject(new CodedError(code, code)) }, pod, {}, never);
  await deleting("not_found");
  await deleting("conflict");
  await assert.rejects(deleting("permission_denied"), { code: "permission_denied" });
});
