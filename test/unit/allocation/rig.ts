import assert from "node:assert/strict";
import type { ResizeState } from "../../../src/state/pod-table.ts";
import type { ResizeTrigger } from "../../../src/state/signals.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Pod, PodStatus, Resources } from "../../../src/objects.ts";
import type { Rejection } from "../../../src/pipeline.ts";
import { createAllocations } from "../../../src/allocation/allocations.ts";
import { createResizes } from "../../../src/allocation/resizes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";
import { resizeConditions } from "../../../src/allocation/resize-states.ts";

export const amounts = (cpu: string): Resources => ({ limits: { cpu: "1" }, requests: { cpu } });
let generation = 1;

/** A version of a pod that asks for so much. */
export function asking(
  uid: string,
  cpu: string,
  more: { spec?: Partial<TestPod["spec"]>; status?: PodStatus } = {},
): TestPod {
  generation += 1;
  const containers = [aContainer("c", { resources: amounts(cpu) })];
  return { ...aPod({ containers, ...more.spec }, { uid, name: uid, generation }), status: more.status ?? {} };
}

export const cpuOf = (pod: Pod | undefined) => pod?.spec.containers[0]?.resources?.requests?.["cpu"] ?? "";
const milli = (pod: Pod) => Number.parseInt(cpuOf(pod), 10);

/** A node with room for 1000m. */
export function rig({ hasStaticCpus = false, hasStaticMemory = false } = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.files.put("/root/graftlet/lock");
  const events = eventLines();
  const woken: string[] = [];
  const store = new Map<string, TestPod>();
  const weighed: string[] = [];
  const measured: string[] = [];
  const world = {
    sourcesSpoke: true,
    freed: 0,
    refusal: undefined as Rejection | undefined,
    /** The pod that ends when another is weighed. */
    ends: undefined as string | undefined,
    swaps: false,
  };
  const common = { clock, log: silentLog() };
  const runs = new Map<string, ReturnType<typeof observe>>();
  const podCache = { get: (uid: string) => runs.get(uid) };
  const allocations = createAllocations({ ...common, fs: host.fs, rootDir: "/root", podCache, privateColumn: aColumn });
  const resize = aColumn<ResizeState>();
  const resizes = createResizes({
    ...common,
    allocations,
    events,
    measures: {
      requested: (...of) => void measured.push(of.join(" ")),
      accepted: (trigger) => void measured.push(trigger),
      infeasible: (detail) => void measured.push(detail),
    },
    usesSwap: async () => world.swaps,
    hasStaticCpus,
    hasStaticMemory,
    desired: { get: (uid) => store.get(uid), byName: () => undefined, list: () => [...store.values()] },
    admission: {
      async admit(pod, others) {
        weighed.push(`${pod.metadata.uid} ${cpuOf(pod)} beside ${others.map(cpuOf).join()}`);
        const used = others.reduce((sum, other) => sum + milli(other), 0);
        const message = `requested: ${milli(pod)}, used: ${used}`;
        if (world.ends !== undefined) store.delete(world.ends);
        return milli(pod) + used > 1000 ? { reason: "OutOfcpu", message } : world.refusal;
      },
    },
    sourcesReady: { all: () => world.sourcesSpoke },
    signals: { retryPendingResizes: { send: () => void world.freed++ } },
    resize,
    privateColumn: aColumn,
  });
  /** Takes pods in that run. */
  const run = (...pods: readonly TestPod[]) => {
    for (const pod of pods) {
      store.set(pod.metadata.uid, pod);
      const container = aStatus(aContainer("c"), ContainerState.CONTAINER_RUNNING, { id: `c-${pod.metadata.uid}` });
      runs.set(pod.metadata.uid, observe([aSandbox()], [container]));
      resizes.addPod(pod);
      resizes.recordRequest(pod);
    }
  };
  const decide = async (trigger: ResizeTrigger = "pod_updated") =>
    void woken.push(...(await resizes.retryPending(() => [...store.values()], trigger, never)));
  const ask = async (...pods: readonly TestPod[]) => {
    for (const pod of pods) {
      store.set(pod.metadata.uid, pod);
      resizes.recordRequest(pod);
    }
    await decide();
  };
  const seen = (uid: string) => runs.get(uid) ?? assert.fail(`${uid} does not run`);
  const states = (uid: string) =>
    resizeConditions(resize.get(uid)).map(({ type, reason = "", message = "" }) =>
      [type, reason, message].join(" ").trim(),
    );
  return {
    resize,
    measured,
    clock,
    host,
    events,
    woken,
    store,
    weighed,
    world,
    allocations,
    resizes,
    run,
    decide,
    ask,
    seen,
    states,
  };
}
