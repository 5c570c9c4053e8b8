import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Pod } from "../../../src/objects.ts";
import type { EventSink } from "../../../src/pipeline.ts";
import type { Hooks } from "../../../src/runtime/hooks.ts";
import { terminatePod, killPod } from "../../../src/runtime/kill.ts";
import { podTerminationGraceAnnotation, preStopHandlerAnnotation } from "../../../src/pod/labels.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const { CONTAINER_RUNNING: running, CONTAINER_EXITED: exited } = ContainerState;

const hook = { exec: { command: ["bye"] } };

function rig(hooks: Hooks = { run: async () => undefined }) {
  const calls: string[] = [];
  const events = eventLines();
  const runtime = {
    stopContainer: async (id: string, grace: number) => void calls.push(`stop ${id} ${grace}`),
    stopPodSandbox: async (id: string) => void calls.push(`stop sandbox ${id}`),
  };
  const clock = fakeClock();
  const log = silentLog();
  return { calls, events, runtime, clock, deps: { runtime, tunnel: undefined, events, hooks, clock, log } };
}

const graces: readonly (readonly [string, Pod, number | undefined, number])[] = [
  ["comes from the pod's spec", aPod({ terminationGracePeriodSeconds: 7 }), undefined, 7],
  [
    "comes from the deletion if there is one",
    aPod({ terminationGracePeriodSeconds: 7 }, { deletionGracePeriodSeconds: 5 }),
    undefined,
    5,
  ],
  ["can be overridden", aPod({ terminationGracePeriodSeconds: 7 }), 3, 3],
  ["is at least two seconds", aPod({ terminationGracePeriodSeconds: 0 }, { deletionGracePeriodSeconds: 0 }), 1, 2],
];
for (const [what, pod, override, seconds] of graces) {
  test(`a container's grace period ${what}`, async () => {
    const { calls, deps } = rig();
    const status = aStatus(aContainer("c"), running);
    await killPod(deps, { observed: observe([], [status]), pod, graceSeconds: override }, never);
    assert.deepEqual(calls, [`stop ${status.id} ${seconds}`]);
  });
}

test("a pod known only to the runtime gets events but runs no hook", async () => {
  const ran: unknown[] = [];
  const { calls, events, runtime, deps } = rig({ run: async (what) => void ran.push(what) });
  const annotations = {
    [podTerminationGraceAnnotation]: "9",
    [preStopHandlerAnnotation]: JSON.stringify({ httpGet: { port: 80 } }),
  };
  const references: unknown[] = [];
  const noting: EventSink = {
    event: (about, ...rest) => {
      references.push(about);
      events.event(about, ...rest);
    },
  };
  const observed = observe([aSandbox()], [aStatus(aContainer("c"), running, { id: "id", annotations })]);
  runtime.stopPodSandbox = async () => Promise.reject(new CodedError("unknown", "stuck"));
  await assert.rejects(terminatePod({ ...deps, events: noting }, { observed, pod: undefined, graceSeconds: 1 }, never));
  assert.deepEqual([calls, ran], [["stop id 2"], []]);
  const about = { kind: "Pod", apiVersion: "v1", namespace: "default", name: "p", uid: "uid-1" };
  assert.deepEqual(references, [{ ...about, fieldPath: "spec.containers{c}" }, about]);
  assert.deepEqual(
    events.lines.map((line) => line.split(" to ")[0]),
    ["Normal Killing Stopping container c", "Warning FailedKillPod error killing pod: failed"],
  );
});

test("stops running containers concurrently, then all sandboxes, and leaves exited containers alone", async () => {
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

test("missing containers count as stopped; a failed stop is reported by an event after all others were tried", async () => {
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
  const kill = {
    observed: observe([sandbox], [aStatus(aContainer("c"), running)]),
    pod: aPod(),
    graceSeconds: 3,
  };
  await assert.rejects(terminatePod(deps, kill, never), { code: "deadline_exceeded" });
  assert.equal(calls.length, 2);
  const why =
    'failed to "KillContainer" for "c" with KillContainerError: "rpc error: code = DeadlineExceeded desc = stuck"';
  assert.equal(events.lines.at(-1), `Warning FailedKillPod error killing pod: ${why}`);
  runtime.stopPodSandbox = async () => Promise.reject(new CodedError("unknown", 'no "cni"'));
  await assert.rejects(terminatePod(deps, kill, never), { code: "deadline_exceeded" });
  const box = String.raw`failed to "KillPodSandbox" for "uid-1" with KillPodSandboxError: "rpc error: code = Unknown desc = no \"cni\""`;
  assert.equal(events.lines.at(-1), `Warning FailedKillPod error killing pod: [${why}, ${box}]`);
});

test("a failed stop while the pod continues emits no FailedKillPod event", async () => {
  const { events, runtime, deps } = rig();
  runtime.stopPodSandbox = async () => Promise.reject(new CodedError("unknown", "stuck"));
  const observed = observe([aSandbox()], []);
  await assert.rejects(killPod(deps, { observed, pod: aPod(), graceSeconds: undefined }, never), /KillPodSandboxError/);
  assert.deepEqual(events.lines, []);
});

/** A hook that takes the given time, or fails. */
function hooksOf(clock: { sleep: (ms: number, signal: AbortSignal) => Promise<void> }, seconds: number | Error): Hooks {
  return {
    run: async (_hook, _target, signal) => {
      if (seconds instanceof Error) throw seconds;
      await clock.sleep(seconds * 1000, signal);
    },
  };
}

const preStop = aContainer("c", { lifecycle: { preStop: hook } });
const hookTimes: readonly (readonly [string, number, number, number])[] = [
  ["the container gets the rest of it", 3, 10, 7],
  ["the container gets at least two seconds", 9, 10, 2],
  ["a hook that does not end is abandoned when the period ends", 3600, 10, 2],
];
for (const [what, takes, graceSeconds, left] of hookTimes) {
  test(`the preStop hook runs within the grace period: ${what}`, async () => {
    const { calls, events, clock, deps } = rig();
    const pod = aPod({ containers: [preStop], terminationGracePeriodSeconds: graceSeconds });
    const observed = observe([], [aStatus(preStop, running, { id: "id" })]);
    const hooks = hooksOf(clock, takes);
    const killing = killPod({ ...deps, hooks }, { observed, pod, graceSeconds: undefined }, never);
    await clock.advance(Math.min(takes, graceSeconds) * 1000 - 1);
    assert.deepEqual(calls, []);
    await clock.advance(1);
    await killing;
    assert.deepEqual(calls, [`stop id ${left}`]);
    assert.equal(events.lines.includes("Warning FailedPreStopHook PreStopHook failed"), takes > graceSeconds);
    assert.equal(clock.pending, 0);
  });
}

test("a failed preStop hook is reported without its output, and the container stops", async () => {
  const { calls, events, clock, deps } = rig();
  const pod = aPod({ containers: [preStop], terminationGracePeriodSeconds: 5 });
  const observed = observe([], [aStatus(preStop, running, { id: "id" })]);
  const hooks = hooksOf(clock, new Error("a secret"));
  await killPod({ ...deps, hooks }, { observed, pod, graceSeconds: undefined }, never);
  assert.deepEqual(calls, ["stop id 5"]);
  assert.deepEqual(events.lines, [
    "Normal Killing Stopping container c",
    "Warning FailedPreStopHook PreStopHook failed",
  ]);
});

test("runs no hook if there is no time for it", async () => {
  const ran: unknown[] = [];
  const { deps } = rig({ run: async (what) => void ran.push(what) });
  const observed = observe([aSandbox()], [aStatus(preStop, running)]);
  await killPod(deps, { observed, pod: aPod({ containers: [preStop] }), graceSeconds: 0 }, never);
  assert.deepEqual(ran, []);
});

/** Containers that exit the given time after they are stopped; stops are recorded with the second they happened in. */
function sidecarRig(seconds: Readonly<Record<string, number>>) {
  const { calls, events, runtime, clock, deps } = rig();
  runtime.stopContainer = async (id, grace) => {
    calls.push(`${clock.monotonic() / 1000} ${id} ${grace}`);
    await clock.sleep(Math.min(grace, seconds[id] ?? 0) * 1000);
  };
  const sidecar = (name: string) => aContainer(name, { restartPolicy: "Always", lifecycle: { preStop: hook } });
  const init = [sidecar("s1"), aContainer("i"), sidecar("s2")];
  const main = [aContainer("a"), aContainer("b")];
  const pod = aPod({ initContainers: init, containers: main, terminationGracePeriodSeconds: 10 });
  const statuses = [...init.filter(({ name }) => name !== "i"), ...main].map((container) =>
    aStatus(container, running, { id: container.name }),
  );
  return { calls, events, clock, deps, pod, observed: observe([aSandbox({ id: "box" })], statuses) };
}

test("sidecars stop after the main containers in reverse order; their hooks run at once", async () => {
  const { calls, clock, deps, pod, observed } = sidecarRig({ a: 1, b: 3, s2: 2 });
  const hooked: string[] = [];
  const hooks: Hooks = {
    run: async (_hook, { container }) => void hooked.push(`${clock.monotonic() / 1000} ${container.name}`),
  };
  const killing = killPod({ ...deps, hooks }, { observed, pod, graceSeconds: undefined }, never);
  await clock.advance(20_000);
  await killing;
  assert.deepEqual(hooked.sort(), ["0 s1", "0 s2"]);
  assert.deepEqual(calls.sort(), ["0 a 10", "0 b 10", "3 s2 7", "5 s1 5", "stop sandbox box"]);
});

test("a sidecar waits no longer than the grace period", async () => {
  const { calls, clock, deps, pod, observed } = sidecarRig({ a: 60, b: 0, s2: 60 });
  const killing = killPod(deps, { observed, pod, graceSeconds: 4 }, never);
  await clock.advance(20_000);
  await killing;
  assert.deepEqual(calls.sort(), ["0 a 4", "0 b 4", "4 s1 2", "4 s2 2", "stop sandbox box"]);
});

test("a sidecar does not wait for containers that are not running", async () => {
  const { calls, clock, deps, pod, observed } = sidecarRig({});
  const left = { ...observed, containers: observed.containers.filter(({ id }) => id === "s1") };
  const killing = killPod(deps, { observed: left, pod, graceSeconds: undefined }, never);
  await clock.advance(0);
  await killing;
  assert.deepEqual(calls, ["0 s1 10", "stop sandbox box"]);
});

test("shortening the grace period during a hook interrupts the kill, which is then retried", async () => {
  const { calls, clock, deps } = rig();
  const stop = new AbortController();
  const pod = aPod({ containers: [preStop], terminationGracePeriodSeconds: 600 });
  const observed = observe([], [aStatus(preStop, running, { id: "id" })]);
  const hooks = hooksOf(clock, 3600);
  const killing = killPod({ ...deps, hooks }, { observed, pod, graceSeconds: undefined }, stop.signal);
  await clock.advance(1000);
  stop.abort(new CodedError("cancelled", "shorter"));
  await assert.rejects(killing, { code: "cancelled" });
  assert.deepEqual([calls, clock.pending], [[], 0]);
});
