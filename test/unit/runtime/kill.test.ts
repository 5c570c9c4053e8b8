import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Pod } from "../../../src/objects.ts";
import { killPod } from "../../../src/runtime/kill.ts";
import { podTerminationGraceAnnotation } from "../../../src/pod/labels.ts";
import { eventLines } from "../../fakes/events.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const never = new AbortController().signal;
const { CONTAINER_RUNNING: running, CONTAINER_EXITED: exited } = ContainerState;

function rig() {
  const calls: string[] = [];
  const events = eventLines();
  const runtime = {
    stopContainer: async (id: string, grace: number) => void calls.push(`stop ${id} ${grace}`),
    stopPodSandbox: async (id: string) => void calls.push(`stop sandbox ${id}`),
  };
  return { calls, events, runtime, deps: { runtime, events } };
}

const graces: readonly (readonly [string, Pod, number | undefined, number])[] = [
  ["the spec's", aPod({ terminationGracePeriodSeconds: 7 }), undefined, 7],
  ["the deletion's", aPod({ terminationGracePeriodSeconds: 7 }, { deletionGracePeriodSeconds: 5 }), undefined, 5],
  ["an override", aPod({ terminationGracePeriodSeconds: 7 }), 3, 3],
  ["never under two seconds", aPod({ terminationGracePeriodSeconds: 0 }, { deletionGracePeriodSeconds: 0 }), 1, 2],
];
for (const [what, pod, override, seconds] of graces) {
  test(`a container's grace period: ${what}`, async () => {
    const { calls, deps } = rig();
    const status = aStatus(aContainer("c"), running);
    await killPod(deps, { observed: observe([], [status]), pod, graceSeconds: override }, never);
    assert.deepEqual(calls, [`stop ${status.id} ${seconds}`]);
  });
}

test("a pod that only the runtime knows has its grace period from its annotation, and gets no events", async () => {
  const { calls, events, deps } = rig();
  const told = aStatus(aContainer("c"), running, { annotations: { [podTerminationGraceAnnotation]: "9" } });
  const untold = aStatus(aContainer("d"), running);
  await killPod(deps, { observed: observe([], [told, untold]), pod: undefined, graceSeconds: undefined }, never);
  assert.deepEqual([calls.sort(), events.lines], [[`stop ${told.id} 9`, `stop ${untold.id} 2`].sort(), []]);
});

test("running containers are stopped side by side, then all sandboxes; ended ones are left alone", async () => {
  const { calls, events, runtime, deps } = rig();
  const [a, b, ended] = [
    aStatus(aContainer("a"), running),
    aStatus(aContainer("b"), running),
    aStatus(aContainer("c"), exited),
  ];
  const sandboxes = [aSandbox(), aSandbox()];
  const begun: string[] = [];
  const gate = Promise.withResolvers<void>();
  runtime.stopContainer = async (id) => {
    begun.push(id);
    if (begun.length === 2) gate.resolve();
    await gate.promise;
    calls.push(`stop ${id}`);
  };
  await killPod(deps, { observed: observe(sandboxes, [a, b, ended]), pod: aPod(), graceSeconds: 3 }, never);
  assert.deepEqual(
    [calls.slice(0, 2).sort(), calls.slice(2).sort()],
    [[`stop ${a.id}`, `stop ${b.id}`].sort(), sandboxes.map(({ id }) => `stop sandbox ${id}`).sort()],
  );
  assert.deepEqual(events.lines.sort(), ["Normal Killing Stopping container a", "Normal Killing Stopping container b"]);
});

test("what is gone already is stopped; one that would not stop is told by an event after the rest was tried", async () => {
  const { calls, events, runtime, deps } = rig();
  const sandbox = aSandbox();
  runtime.stopContainer = async () => Promise.reject(new CodedError("not_found", "gone"));
  await killPod(
    deps,
    { observed: observe([sandbox], [aStatus(aContainer("c"), running)]), pod: aPod(), graceSeconds: 3 },
    never,
  );
  assert.deepEqual(calls, [`stop sandbox ${sandbox.id}`]);
  runtime.stopContainer = async () => Promise.reject(new CodedError("deadline_exceeded", "stuck"));
  await assert.rejects(
    killPod(
      deps,
      { observed: observe([sandbox], [aStatus(aContainer("c"), running)]), pod: aPod(), graceSeconds: 3 },
      never,
    ),
    { code: "deadline_exceeded" },
  );
  assert.equal(calls.length, 2);
  assert.equal(events.lines.at(-1), "Warning FailedKillPod error killing pod: stuck");
});
