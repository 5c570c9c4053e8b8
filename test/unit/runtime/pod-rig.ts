import { ContainerConfig, ContainerState, LinuxContainerResources, PodSandboxConfig } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";

import type { RuntimePod } from "../../../src/pipeline.ts";
import { containerHash } from "../../../src/pod/hash.ts";
import { containerHashAnnotation, containerNameLabel, podUidLabel } from "../../../src/pod/labels.ts";
import { containerNameOf } from "../../../src/pod/runs.ts";
import { createCrashLoop } from "../../../src/runtime/crash-loop.ts";
import { type PodRuntimeDeps, createPodRuntime } from "../../../src/runtime/pod-runtime.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { type TestPod, observe } from "../../fakes/pods.ts";
import { allInForce, noGroups } from "../../fakes/resizes.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { unmeasured } from "../../fakes/measures.ts";
import type { ContainerStarts } from "../../../src/state/pod-table.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";

/** Sync passes over one pod on the fake runtime, each observing the result of the one before. */
export function rig(over: Partial<PodRuntimeDeps> = {}) {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock });
  runtime.addImage("busybox");
  const events = eventLines();
  const ready: (number | "look")[] = [];
  const unlogged: string[] = [];
  const starts = aColumn<ContainerStarts>();
  const podRuntime = createPodRuntime({
    starts,
    tunnel: undefined,
    runtime,
    clock,
    hooks: { run: async () => undefined },
    managers: [],
    measures: unmeasured.starts,
    resizes: unmeasured.resizes,
    events,
    log: silentLog(),
    paceSandbox: (create) => create(),
    uninterrupted: never,
    crashLoop: createCrashLoop({ clock, targetClock: { toOurs: (time) => time }, events, maxMs: 300_000 }),
    withStableFiles: (_uid, work) => work(),
    ensureImages: async ({ container }) => {
      if (container.image === "none") throw new StartError("ErrImagePull", "not there");
      return { imageRef: "busybox", volumes: new Map() };
    },
    configureSandbox: async ({ metadata: { name, namespace, uid } }, attempt) =>
      PodSandboxConfig.fromPartial({
        metadata: { name, namespace, uid, attempt },
        labels: { [podUidLabel]: uid },
        logDirectory: "/logs",
      }),
    createLogDirectory: async () => undefined,
    findPresentImage: async () => undefined,
    loggedContainers: async () => new Set<string>(),
    createContainerFiles: async (_pod, _container, attempt) => ({ instance: String(attempt), hostsFile: "" }),
    configure: async ({ container }, { imageRef: image }, restartCount) => ({
      config: ContainerConfig.fromPartial({
        metadata: { name: container.name, attempt: restartCount },
        image: { image },
        command: container.command ?? ["sleep", "3600"],
        labels: { [containerNameLabel]: container.name },
        annotations: { [containerHashAnnotation]: containerHash(container) },
      }),
      hostsWritten: Promise.resolve(),
    }),
    restartCountFromLogs: async () => 0,
    linkLog: async () => undefined,
    removeLog: async (_pod, status) => void unlogged.push(`${containerNameOf(status)} ${status.id}`),
    probes: { failedProbe: () => undefined, started: () => undefined },
    isRestartingAll: () => false,
    actuatedResources: allInForce,
    groups: noGroups,
    configureResources: async () => LinuxContainerResources.fromPartial({}),
    sandboxOverhead: () => ({}),
    runtimeClasses: { handler: async (name) => `handler-of-${name}` },
    ...over,
  });
  const see = async (): Promise<RuntimePod> => {
    const sandboxes = await Promise.all(
      (await runtime.listPodSandbox(undefined, never)).map(
        async ({ id }) => (await runtime.podSandboxStatus(id, never)).status,
      ),
    );
    const containers = await Promise.all(
      (await runtime.listContainers(undefined, never)).map(
        async ({ id }) => (await runtime.containerStatus(id, never)).status,
      ),
    );
    const listed = await runtime.listContainers(undefined, never);
    return {
      ...observe(
        sandboxes.filter((each) => each !== undefined),
        containers.filter((each) => each !== undefined),
      ),
      sandboxOf: new Map(listed.map(({ id, podSandboxId }) => [id, podSandboxId])),
    };
  };
  const pass = async (pod: TestPod, signal = never) => {
    const seen = await see();
    const planned = await podRuntime.plan(pod, seen, signal);
    const { made: _made, rest, ...outcome } = await planned.perform(new Map(), show, signal);
    await rest;
    return outcome;
  };
  const show = async (shown: RuntimePod | undefined) => void ready.push(shown?.sandboxes.length ?? "look");
  /** The same pass for a pod that the runtime does not have. */
  const first = async (pod: TestPod) =>
    (await podRuntime.plan(pod, observe([], []), never)).perform(new Map(), show, never);
  const states = async () =>
    (await see()).containers
      .map(({ labels, state, metadata }) => `${labels[containerNameLabel]}/${metadata?.attempt} ${state}`)
      .sort();
  return { clock, runtime, events, ready, unlogged, podRuntime, starts, see, pass, first, states };
}

export const running = (name: string, attempt = 0) => `${name}/${attempt} ${ContainerState.CONTAINER_RUNNING}`;
export const exited = (name: string, attempt = 0) => `${name}/${attempt} ${ContainerState.CONTAINER_EXITED}`;
