import assert from "node:assert/strict";
import { test } from "node:test";
import { createNodeCgroups } from "../../../src/cgroups/node-cgroups.ts";
import { createPodHostResources } from "../../../src/cgroups/pod-host-resources.ts";
import { createQosCgroups } from "../../../src/cgroups/qos-cgroups.ts";
import { ContainerState, ImageSpec } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { RuntimeIds, RuntimePod } from "../../../src/pipeline.ts";
import { listAndObserve } from "../../../src/pleg/observe.ts";
import { allocatedPod } from "../../../src/roles.ts";
import { createCrashLoop } from "../../../src/runtime/crash-loop.ts";
import { createPodRuntime } from "../../../src/runtime/pod-runtime.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { allInForce } from "../../fakes/resizes.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";
import { preparerIn } from "../runtime/preparer.ts";
import { rig } from "./passes-rig.ts";

/** Duration of a call to the target, milliseconds: nothing else takes time. */
const tripMs = 100;
const root = "/node";
const log = silentLog();

/** The same object, whose calls take a round trip each. */
function far<Target extends object>(target: Target, clock: FakeClock): Target {
  return new Proxy(target, {
    get(of, name) {
      const value: unknown = Reflect.get(of, name);
      if (typeof value !== "function") return value;
      return async (...given: unknown[]) => {
        await clock.sleep(tripMs / 2);
        const answer = (await Reflect.apply(value, of, given)) as unknown;
        await clock.sleep(tripMs / 2);
        return answer;
      };
    },
  });
}

/** A node with its target far away. Each pod has a volume that takes one round trip. */
function farNode() {
  /** Pods that the node has been told to run. */
  const pods: TestPod[] = [];
  const clock = fakeClock();
  const near = fakeHost({ clock });
  near.files.put("/sys/fs/cgroup/cgroup.controllers", { data: "cpu memory pids\n" });
  near.files.put(`${root}/resolv.conf`, { data: "nameserver 192.0.2.53\n" });
  const host = { ...near, fs: far(near.fs, clock), run: far({ run: near.run }, clock).run };
  const nearRuntime = fakeRuntime({ clock });
  nearRuntime.addImage("busybox");
  const runtime = far(nearRuntime, clock);
  const { preparer } = preparerIn(root, { fs: host.fs, clock, images: runtime });
  const layout = { driver: "cgroupfs", root: "", perQos: true } as const;
  const cgroups = createNodeCgroups({
    host,
    layout: async () => layout,
    rootDir: root,
    measures: unmeasured.cgroups,
    clock,
    log,
  });
  const qosCgroups = createQosCgroups({
    cgroups,
    pods: { list: () => pods },
    worker: { get: () => undefined },
    podCache: { get: () => undefined },
    allocatedPod,
    pageSizes: [],
    measures: unmeasured.cgroups,
  });
  const events = eventLines();
  const hostResources = createPodHostResources({
    host,
    rootDir: root,
    cgroups,
    qosCgroups,
    settings: { cpuCfsQuota: true, cpuCfsPeriodUs: 100_000 },
    podPidsLimit: 100,
    events,
    pageSizes: [],
    swap: { memoryBytes: 2 ** 30, swapBytes: 0, limitedSwap: false },
    runtime,
    log,
  });
  const podRuntime = createPodRuntime({
    ...preparer,
    starts: aColumn(),
    tunnel: undefined,
    runtime,
    clock,
    hooks: { run: async () => undefined },
    managers: [],
    measures: unmeasured.starts,
    resizes: unmeasured.resizes,
    events,
    log,
    paceSandbox: (create) => create(),
    uninterrupted: never,
    crashLoop: createCrashLoop({ clock, targetClock: { toOurs: (time) => time }, events, maxMs: 300_000 }),
    withStableFiles: (_uid, work) => work(),
    findPresentImage: (_pod, { image = "" }, signal) => runtime.imageStatus(ImageSpec.fromPartial({ image }), signal),
    ensureImages: async ({ presentImage }) => {
      assert.ok(presentImage);
      return { imageRef: presentImage.id, image: presentImage, volumes: new Map() };
    },
    probes: { failedProbe: () => undefined, started: () => undefined },
    isRestartingAll: () => false,
    actuatedResources: allInForce,
    groups: hostResources.groups,
    runtimeClasses: { handler: async () => "" },
  });
  const observed = aColumn<RuntimePod>();
  const inspect = async (uid: string, signal: AbortSignal, made = { sandboxes: [], containers: [] } as RuntimeIds) => {
    const texts = { terminationMessage: async () => "", writtenMessage: async () => undefined };
    const seen = await listAndObserve(
      { runtime, clock, ownerLabels: {}, ...texts },
      uid,
      { known: made, ended: [] },
      signal,
    );
    observed.set(uid, seen);
    return seen;
  };
  /** Statuses with the time of their report. */
  const reports: { readonly status: string; readonly at: number }[] = [];
  const { passes } = rig({
    clock,
    podCache: observed,
    inspector: { inspect, needsInspection: () => false, recordObservation: (seen) => observed.set(seen.uid, seen) },
    podRuntime,
    hostResources,
    volumes: {
      async mount({ metadata: { uid } }, signal) {
        await host.fs.apply([{ kind: "mkdir", path: `${root}/pods/${uid}/volumes/token`, parents: true }], signal);
        return new Map();
      },
      unmount: async () => undefined,
    },
    statusOf: (_pod, { ips, containers }) => {
      const isRunning = containers.some(({ state }) => state === ContainerState.CONTAINER_RUNNING);
      reports.push({ status: isRunning ? "Running" : ips.length > 0 ? "has IP" : "Pending", at: clock.monotonic() });
      return { phase: isRunning ? "Running" : "Pending" };
    },
  });
  /** Starts a pod. @returns the round trips until each of its statuses is reported. */
  const start = async (pod: TestPod) => {
    pods.push(pod);
    const began = clock.monotonic();
    reports.length = 0;
    const synced = passes.sync(pod, never);
    await clock.advance(100 * tripMs);
    await synced;
    return reports.map(({ status, at }) => `${status} after ${(at - began) / tripMs}`);
  };
  return { start };
}

const asking = { requests: { cpu: "100m" } };
const readsAddress = { name: "IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } };
for (const [title, containers, running] of [
  ["a pod's start takes five round trips, one after another", [aContainer("c", { resources: asking })], 5],
  ["a further container takes two round trips more", [aContainer("a"), aContainer("b")], 7],
  [
    "a pod's start takes a sixth round trip if a container's environment has the pod's address",
    [aContainer("c", { env: [readsAddress] })],
    6,
  ],
] as const)
  test(title, async () => {
    const { start } = farNode();
    const pod = (name: string) => aPod({ containers: [...containers] }, { uid: name, name });
    // The first pod also creates what all pods share.
    await start(pod("first"));
    assert.deepEqual(await start(pod("second")), ["Pending after 0", "has IP after 3", `Running after ${running}`]);
  });
