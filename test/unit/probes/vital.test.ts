import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { aSandbox, observe } from "../../fakes/pods.ts";
import { rig } from "./rig.ts";

const asking = (command: string, more: object = {}) => ({
  exec: { command: [command] },
  periodSeconds: 10,
  failureThreshold: 2,
  ...more,
});
const vital = (probes: object) => rig({ container: { readinessProbe: undefined, ...probes } });

test("liveness: probes one period after the start, fails at its threshold, wakes the pod and stops probing", async () => {
  const { probes, pod, clock, state, run, condemnedBy } = vital({ livenessProbe: asking("alive") });
  const id = run();
  probes.add(pod);
  state.exitCode = 1;
  await clock.advance(9_900);
  assert.deepEqual(state.probed, []);
  await clock.advance(10_000);
  assert.deepEqual([condemnedBy(id), state.woken], [undefined, []], "one failure of two");
  await clock.advance(100);
  assert.deepEqual([condemnedBy(id), state.woken], ["liveness", ["uid-1 probe"]]);
  await clock.advance(60_000);
  assert.equal(state.probed.length, 2);
});

test("liveness: a replacement container gets its own verdict", async () => {
  const { probes, pod, clock, state, run, started, condemnedBy } = vital({
    livenessProbe: asking("alive", { failureThreshold: 1 }),
  });
  const first = run();
  probes.add(pod);
  state.exitCode = 1;
  await clock.advance(10_000);
  assert.equal(condemnedBy(first), "liveness");
  const second = run();
  started(second);
  await clock.advance(0);
  assert.equal(condemnedBy(second), undefined);
  state.exitCode = 0;
  await clock.advance(30_000);
  assert.deepEqual([condemnedBy(second), state.probed.length], [undefined, 4]);
});

test("no probe runs before the container's postStart hook has ended", async () => {
  const { probes, pod, clock, state, run, condemnedBy } = vital({
    livenessProbe: asking("alive", { failureThreshold: 1 }),
    readinessProbe: asking("ready"),
  });
  const id = run();
  state.starting = true;
  state.exitCode = 1;
  probes.add(pod);
  await clock.advance(60_000);
  assert.deepEqual([condemnedBy(id), state.probed], [undefined, []]);
  state.starting = false;
  await clock.advance(10_000);
  assert.equal(condemnedBy(id), "liveness");
});

test("liveness: a created container that is not running yet does not fail", async () => {
  const { probes, pod, clock, run, condemnedBy } = vital({ livenessProbe: asking("alive", { failureThreshold: 1 }) });
  const id = run(ContainerState.CONTAINER_CREATED);
  probes.add(pod);
  await clock.advance(30_000);
  assert.equal(condemnedBy(id), undefined);
});

test("startup: no other probe runs until it succeeds, then it never runs again", async () => {
  const { probes, pod, clock, state, run, ready, started, condemnedBy } = rig({
    container: {
      readinessProbe: asking("ready"),
      livenessProbe: asking("alive"),
      startupProbe: asking("up", { failureThreshold: 5 }),
    },
  });
  state.exitCodes["up"] = 1;
  const id = run();
  probes.add(pod);
  await clock.advance(25_000);
  assert.deepEqual([started(id), ready(id)], [false, "Failure"]);
  assert.deepEqual(new Set(state.probed.map(({ command }) => command)), new Set(["up"]));
  state.exitCodes["up"] = 0;
  await clock.advance(5_000);
  assert.deepEqual([started(id), ready(id), condemnedBy(id)], [true, "Success", undefined]);
  const asked = state.probed.length;
  await clock.advance(20_000);
  assert.deepEqual(
    state.probed.slice(asked).map(({ command }) => command),
    ["alive", "ready", "alive", "ready"],
  );
});

test("startup: failures within the first period do not count, then it fails at its threshold", async () => {
  const { probes, pod, clock, state, run, started, condemnedBy } = vital({ startupProbe: asking("up") });
  state.exitCode = 1;
  const id = run();
  probes.add(pod);
  await clock.advance(19_900);
  assert.deepEqual([state.probed.length, condemnedBy(id)], [2, undefined]);
  await clock.advance(100);
  assert.deepEqual([condemnedBy(id), started(id), state.woken], ["startup", false, ["uid-1 probe"]]);
  await clock.advance(60_000);
  assert.equal(state.probed.length, 3);
});

test("startup: a container that started before the agent is not probed again", async () => {
  const container = { name: "c", ready: true, started: true, image: "", imageID: "", restartCount: 0 };
  const { probes, pod, clock, state, run, started } = vital({ startupProbe: asking("up") });
  const id = run();
  pod.status = { containerStatuses: [{ ...container, containerID: `containerd://${id}` }] };
  assert.equal(started(id), true);
  probes.add(pod);
  await clock.advance(60_000);
  assert.deepEqual([started(id), state.probed], [true, []]);
});

test("a terminating pod fails no liveness or startup probe; only readiness is probed", async () => {
  for (const how of ["deleted", "spared"] as const) {
    const { probes, pod, clock, state, run, condemnedBy } = rig({
      container: { readinessProbe: asking("ready"), livenessProbe: asking("alive") },
    });
    const id = run();
    probes.add(pod);
    await clock.advance(5_000);
    if (how === "deleted") state.pods = [{ ...pod, metadata: { ...pod.metadata, deletionTimestamp: "now" } }];
    else probes.stopLivenessAndStartup(pod.metadata.uid);
    state.exitCode = 1;
    await clock.advance(60_000);
    assert.equal(condemnedBy(id), undefined, how);
    assert.deepEqual(new Set(state.probed.map(({ command }) => command)), new Set(["ready"]), how);
  }
});

test("a container that has exited for good is not probed", async () => {
  const { probes, pod, clock, state, run, condemnedBy } = rig({
    spec: { restartPolicy: "Never" },
    container: { readinessProbe: undefined, livenessProbe: asking("alive", { failureThreshold: 1 }) },
  });
  const id = run();
  probes.add(pod);
  const [last] = state.cached?.containers ?? [];
  assert.ok(last);
  state.cached = observe([aSandbox()], [{ ...last, state: ContainerState.CONTAINER_EXITED, exitCode: 1 }]);
  await clock.advance(60_000);
  assert.deepEqual([condemnedBy(id), state.probed, clock.pending], [undefined, [], 0]);
});
