import assert from "node:assert/strict";
import { test } from "node:test";
import { type ContainerCollectionDeps, createContainerCollection } from "../../../src/gc/container-collection.ts";
import { Container, ContainerState, PodSandbox, PodSandboxState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import type { WorkerView } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { fakeTargetGate } from "../../fakes/target-gate.ts";
import { fakeTracer } from "../../fakes/tracer.ts";

const { CONTAINER_EXITED: exited, CONTAINER_RUNNING: running, CONTAINER_CREATED: created } = ContainerState;
const { SANDBOX_NOTREADY: notReady } = PodSandboxState;

/** @param view the worker's view of a desired pod. */
function rig(pod: RuntimePod, view: Partial<WorkerView> = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const target = fakeTargetGate();
  const calls: string[] = [];
  const events = eventLines();
  const said = (what: string) => async (id: string) => void calls.push(`${what} ${id}`);
  const runtime: ContainerCollectionDeps["runtime"] = {
    stopContainer: said("stop"),
    removeContainer: said("remove"),
    stopPodSandbox: said("stop sandbox"),
    removePodSandbox: said("remove sandbox"),
    listContainers: async () =>
      pod.containers.map((status) =>
        Container.fromPartial({ ...status, podSandboxId: status.logPath.split("/")[3] ?? "" }),
      ),
    listPodSandbox: async () => pod.sandboxes.map((status) => PodSandbox.fromPartial(status)),
    containerStatus: async () => Promise.reject(new CodedError("not_found", "unknown")),
  };
  const known = aPod();
  const tracer = fakeTracer();
  const deps = {
    runtime,
    fs: host.fs,
    clock,
    desired: { get: (uid: string) => (uid === pod.uid ? known : undefined) },
    podCache: { get: (uid: string) => (uid === pod.uid ? pod : undefined), list: () => [pod] },
    worker: {
      get: (uid: string) => (uid === pod.uid ? { phase: "syncing" as const, pod: known, ...view } : undefined),
    },
    inspector: { inspect: async () => pod, needsInspection: () => false },
    allSourcesReady: () => true,
    ownerLabels: {},
    limits: { minAgeMs: 0, perContainer: 1, all: -1 },
    nodeName: "node",
    events,
    targetClock: { now: () => clock.now() },
    waitForTarget: target.present,
    podLogsDir: "/pods",
    containerLogsDir: "/links",
    tracer,
    log: silentLog(),
  };
  return { clock, host, calls, runtime, target, events, deps, garbage: createContainerCollection(deps) };
}

const c = aContainer("c");

test("every minute, removes dead containers except the newest of each name, with their logs, rotated logs and links", async () => {
  const [first, second, last] = [0, 1, 2].map((attempt) =>
    aStatus(c, exited, { logPath: `/pods/ns_p_uid-1/c/${attempt}.log` }),
  );
  const other = aStatus(aContainer("d"), exited);
  const { clock, host, calls, deps, garbage } = rig(
    observe(
      [aSandbox()],
      [first, second, last, other].filter((each) => each !== undefined),
    ),
  );
  for (const name of ["0.log", "0.log.20260101-000000", "0.log.20260101-000000.gz", "1.log", "10.log", "2.log"])
    host.files.put(`/pods/ns_p_uid-1/c/${name}`);
  await host.fs.apply([{ kind: "mkdir", path: "/links" }]);
  await host.fs.apply(
    ["0.log", "2.log"].map((name) => ({
      kind: "symlink",
      path: `/links/${name}`,
      target: `/pods/ns_p_uid-1/c/${name}`,
    })),
  );
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(59_000);
  assert.deepEqual(calls, []);
  await clock.advance(1_000);
  stop.abort();
  await work;
  assert.deepEqual(new Set(calls), new Set([`remove ${first?.id}`, `remove ${second?.id}`]));
  assert.deepEqual(host.files.tree("/pods/ns_p_uid-1/c"), ["/pods/ns_p_uid-1/c/10.log", "/pods/ns_p_uid-1/c/2.log"]);
  assert.deepEqual(host.files.tree("/links"), ["/links/2.log"]);
  assert.deepEqual(deps.tracer.spans, [{ name: "Containers/GarbageCollect", parent: "none", added: {} }]);
});

test("collects no garbage while the target is unreachable", async () => {
  const dead = ["old", "new"].map((id) => aStatus(c, exited, { id }));
  const { clock, calls, target, garbage } = rig(observe([aSandbox()], dead));
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  target.lose();
  await clock.advance(180_000);
  assert.deepEqual(calls, []);
  target.find();
  await clock.advance(0);
  assert.deepEqual(calls, ["remove old"]);
  stop.abort();
  await work;
});

test("every minute, removes dangling log links, except those of live containers", async () => {
  const alive = aStatus(c, running, { id: "alive" });
  const dead = aStatus(aContainer("d"), exited, { id: "dead" });
  const { clock, host, calls, garbage } = rig(observe([aSandbox()], [alive, dead]));
  await host.fs.apply([
    { kind: "mkdir", path: "/links" },
    ...[alive.id, dead.id, "stranger"].map(
      (id) => ({ kind: "symlink", path: `/links/p_ns_c-${id}.log`, target: "/pods/none/0.log" }) as const,
    ),
  ]);
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, []);
  assert.deepEqual(host.files.tree("/links"), [`/links/p_ns_c-${alive.id}.log`]);
});

test("removes old containers that never started, but no running or starting containers, regardless of their age", async () => {
  const left = aStatus(c, created);
  const { clock, calls, garbage } = rig(
    observe([aSandbox()], [left, aStatus(c, running), aStatus(c, exited), aStatus(c, exited), aStatus(c, created)]),
  );
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(new Set(calls).has(`remove ${left.id}`), true);
  assert.equal(calls.length, 2);
});

test("removes old sandboxes that are not ready and have no containers, but keeps the newest", async () => {
  const [used, spare, ready, newest] = [
    aSandbox({ state: notReady }),
    aSandbox({ state: notReady }),
    aSandbox(),
    aSandbox({ state: notReady }),
  ];
  const its = aStatus(c, exited, { logPath: `/pods/ns_p_uid-1/${used.id}/0.log` });
  const { clock, calls, garbage } = rig(observe([used, spare, ready, newest], [its]));
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, [`stop sandbox ${spare.id}`, `remove sandbox ${spare.id}`]);
});

test("removes all leftovers of a deleted pod: containers, sandboxes, dangling links, and only the logs with its UID", async () => {
  const sandbox = aSandbox();
  const status = aStatus(c, exited, { logPath: "/pods/ns_p_uid-1/c/0.log" });
  const { host, calls, runtime, garbage } = rig(observe([sandbox], [status]));
  host.files.put("/pods/ns_p_uid-1/c/0.log");
  host.files.put("/pods/ns_p_uid-2/c/0.log");
  await host.fs.apply([
    { kind: "mkdir", path: "/links" },
    { kind: "symlink", path: "/links/gone.log", target: "/pods/ns_p_uid-1/c/0.log" },
    { kind: "symlink", path: "/links/stays.log", target: "/pods/ns_p_uid-2/c/0.log" },
  ]);
  runtime.removeContainer = async () => Promise.reject(new CodedError("not_found", "gone already"));
  await garbage.removePodLeftovers("uid-1", never);
  assert.deepEqual(calls, [`stop sandbox ${sandbox.id}`, `remove sandbox ${sandbox.id}`]);
  assert.deepEqual(
    [host.files.tree("/pods"), host.files.tree("/links")],
    [["/pods/ns_p_uid-2", "/pods/ns_p_uid-2/c", "/pods/ns_p_uid-2/c/0.log"], ["/links/stays.log"]],
  );
});

test("a container that cannot be removed does not block the others and is retried", async () => {
  const [old, newer, newest] = [aStatus(c, exited), aStatus(c, exited), aStatus(c, exited)];
  const { clock, calls, runtime, events, garbage } = rig(observe([aSandbox()], [old, newer, newest]));
  const remove = runtime.removeContainer;
  runtime.removeContainer = async (id, signal) =>
    id === old.id ? Promise.reject(new CodedError("unknown", "device busy")) : remove(id, signal);
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  assert.deepEqual(calls, [`remove ${newer.id}`]);
  runtime.removeContainer = remove;
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.ok(calls.includes(`remove ${old.id}`));
  assert.deepEqual(events.lines, []);
});

test("emits a node event each time the runtime does not answer", async () => {
  const { clock, runtime, events, garbage } = rig(observe([aSandbox()], []));
  runtime.listContainers = async () => Promise.reject(new CodedError("unavailable", "connection error"));
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(120_000);
  stop.abort();
  await work;
  const line = "Warning ContainerGCFailed rpc error: code = Unavailable desc = connection error";
  assert.deepEqual(events.lines, [line, line]);
});

test("removes all containers, sandboxes and logs of an evicted pod once it has terminated", async () => {
  const sandbox = aSandbox({ state: notReady });
  const status = aStatus(c, exited, { logPath: "/pods/ns_p_uid-1/c/0.log" });
  for (const phase of ["terminating", "finished"] as const) {
    const { clock, host, calls, garbage } = rig(observe([sandbox], [status]), { phase, evicted: true });
    host.files.put("/pods/ns_p_uid-1/c/0.log");
    const stop = new AbortController();
    const work = garbage.run(stop.signal);
    await clock.advance(60_000);
    stop.abort();
    await work;
    const all = [`remove ${status.id}`, `stop sandbox ${sandbox.id}`, `remove sandbox ${sandbox.id}`];
    assert.deepEqual(calls, phase === "finished" ? all : []);
    assert.equal(host.files.tree("/pods").length, phase === "finished" ? 0 : 3);
  }
});

test("keeps the newest containers of a pod that terminated by itself until the node needs the space", async () => {
  const status = aStatus(c, exited);
  const { clock, calls, garbage } = rig(observe([aSandbox({ state: notReady })], [status]), { phase: "finished" });
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, []);
  await garbage.deleteUnusedContainers(never);
  assert.equal(calls[0], `remove ${status.id}`);
  assert.equal(calls.length, 3);
});

test("before removing a container in unknown state, stops it with its pod's grace period", async () => {
  const unknown = aStatus(c, ContainerState.CONTAINER_UNKNOWN, {
    annotations: { "io.kubernetes.pod.terminationGracePeriod": "7" },
  });
  const { runtime, calls, garbage } = rig(observe([aSandbox()], [unknown]), { phase: "finished" });
  runtime.stopContainer = async (id, seconds) => void calls.push(`stop ${id} ${seconds}`);
  await garbage.deleteUnusedContainers(never);
  assert.deepEqual(calls, [`stop ${unknown.id} 7`, `remove ${unknown.id}`]);
});

test("removes logs of unknown pods only after all pod sources have reported, and never on a shared runtime", async () => {
  const rounds: readonly (readonly [Partial<ContainerCollectionDeps>, boolean])[] = [
    [{}, false],
    [{ allSourcesReady: () => false }, true],
    [{ ownerLabels: { "graftlet.dev/node": "node" } }, true],
  ];
  for (const [more, stays] of rounds) {
    const { host, deps } = rig(observe([aSandbox()], []));
    for (const path of ["ns_p_uid-1/c/0.log", "ns_gone_uid-2/c/0.log", "notes/0.log"]) host.files.put(`/pods/${path}`);
    await createContainerCollection({ ...deps, ...more }).deleteUnusedContainers(never);
    const kept = host.files.tree("/pods").filter((path) => path.endsWith(".log"));
    assert.deepEqual(kept, [
      "/pods/notes/0.log",
      ...(stays ? ["/pods/ns_gone_uid-2/c/0.log"] : []),
      "/pods/ns_p_uid-1/c/0.log",
    ]);
  }
});
