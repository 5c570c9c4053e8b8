import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createSetupFailures } from "../../../src/process/node-run.ts";
import { fakeClient, silent } from "../api/fake-client.ts";
import { fakeClock } from "../../fakes/clock.ts";

const { signal } = new AbortController();

test("emits an event about the Node for a failed start, and updates that event if the failure repeats", async () => {
  const client = fakeClient(() => ({}));
  const failures = createSetupFailures({ nodeName: "n1", clock: fakeClock(), log: silent });
  await failures.record({ client, standalone: false, error: new Error("the port is taken") }, signal);
  await failures.record({ client, standalone: false, error: new Error("the port is taken") }, signal);
  const [create, patch] = client.calls;
  const { involvedObject, type, reason, message, source } = (create?.body ?? {}) as Record<string, unknown>;
  assert.deepEqual(
    { path: create?.path, involvedObject, type, reason, message, source },
    {
      path: "/api/v1/namespaces/default/events",
      involvedObject: { kind: "Node", apiVersion: "v1", name: "n1" },
      type: "Warning",
      reason: "KubeletSetupFailed",
      message: "the port is taken",
      source: { component: "kubelet", host: "n1" },
    },
  );
  assert.match(patch?.path ?? "", /^\/api\/v1\/namespaces\/default\/events\/n1\./);
});

test("emits no event for a standalone node, or one that was stopped", async () => {
  const client = fakeClient(() => ({}));
  const failures = createSetupFailures({ nodeName: "n1", clock: fakeClock(), log: silent });
  const error = new Error("stopped");
  await failures.record({ client, standalone: true, error }, signal);
  await failures.record({ client, standalone: false, error }, AbortSignal.abort());
  assert.equal(client.calls.length, 0);
});

test("does not fail if the API server does not respond", async () => {
  const client = fakeClient(() => {
    throw new CodedError("unavailable", "no route");
  });
  const failures = createSetupFailures({ nodeName: "n1", clock: fakeClock(), log: silent });
  await failures.record({ client, standalone: false, error: new Error("the port is taken") }, signal);
  assert.equal(client.calls.length, 1);
});
