import { ContainerState, type ContainerStatus } from "../../../src/gen/cri.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import { createSignal } from "../../../src/lib/signal.ts";
import type { Container, PodStatus, Probe } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { createProbes } from "../../../src/probes/probes.ts";
import { apiPod } from "../../../src/roles.ts";
import type { Address } from "../../../src/seams/host.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import type { FakeLink } from "../../fakes/link.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { unmeasured } from "../../fakes/measures.ts";

export const uid = "uid-1";
const silent: Logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child: () => silent };

export interface RigOptions {
  /** Changes to the readiness probe, an exec probe every 10 s. */
  readonly probe?: Partial<Probe>;
  /** Changes to the container. */
  readonly container?: Partial<Container>;
  readonly spec?: Partial<TestPod["spec"]>;
  /** How long before the clock's start the agent was started. */
  readonly agentAgeMs?: number;
  /** How far the target's clock is ahead of ours. */
  readonly offsetMs?: number;
  readonly status?: PodStatus;
  readonly link?: FakeLink;
  /** Replaces the fake clock's jitter, which is always the lower bound. */
  readonly jitter?: Clock["jitter"];
  /** The target's addresses, primary first. */
  readonly hostIPs?: readonly string[];
}

/** Probes of one pod with one container `c`, its exec answered by `answer`. */
export function rig({
  probe = {},
  container: more,
  spec,
  agentAgeMs = 3_600_000,
  offsetMs = 0,
  status,
  jitter,
  link,
  hostIPs = ["192.0.2.1"],
}: RigOptions = {}) {
  const still = fakeClock();
  const clock = { ...still, ...(jitter && { jitter }) };
  const readinessProbe = { exec: { command: ["check"] }, periodSeconds: 10, ...probe };
  const container = aContainer("c", { readinessProbe, ...more });
  const pod: TestPod = { ...aPod({ containers: [container], ...spec }), ...(status && { status }) };
  const state = {
    pods: [pod],
    cached: undefined as RuntimePod | undefined,
    held: undefined as PodStatus | undefined,
    /** The status of the pod's mirror pod. */
    mirror: undefined as PodStatus | undefined,
    exitCode: 0,
    /** Answers by command, instead of `answer`. */
    exitCodes: {} as Record<string, number>,
    /** Whether the target answers; a connection loss is not detected at once. */
    answers: true,
    /** Whether the locks on the target are lost. */
    isClaimLost: false,
    /** Called when a probe begins. */
    onProbe: () => {},
    probed: [] as { at: number; id: string; command: string }[],
    /** The container's postStart hook is still running. */
    starting: false,
    woken: [] as string[],
    dialled: [] as Address[],
    told: [] as string[],
  };
  const begun = still.now();
  const ends: ((uid: string) => void)[] = [];
  const lost = createSignal();
  const probes = createProbes({
    starts: { get: () => ({ inProgress: new Set(state.starting ? [container.name] : []), failures: new Map() }) },
    onEnd: (hear) => void ends.push(hear),
    link,
    claim: { isLost: () => state.isClaimLost, onLost: lost.subscribe },
    measures: unmeasured.probes,
    host: {
      fs: {
        ...fakeHost({ clock: still }).fs,
        async stat(path) {
          if (!state.answers) throw new CodedError("unavailable", path);
          return { kind: "directory", mode: 0o755, uid: 0, gid: 0, size: 0, modifiedAt: 0, inode: 2 };
        },
      },
      dial: async (to) => {
        state.dialled.push(to);
        throw new CodedError("unavailable", "nobody there");
      },
    },
    runtime: {
      async execSync(id, argv) {
        const command = argv.join(" ");
        state.probed.push({ at: still.now() - begun, id, command });
        state.onProbe();
        if (!state.answers) throw new CodedError("deadline_exceeded", "no answer");
        if (state.isClaimLost) throw new CodedError("unavailable", "the target cannot be used: its lock was lost");
        return {
          exitCode: state.exitCodes[command] ?? state.exitCode,
          stdout: Buffer.alloc(0),
          stderr: Buffer.alloc(0),
        };
      },
    },
    clock,
    targetClock: { toOurs: (time) => time - offsetMs },
    hostIPs: () => hostIPs,
    log: silent,
    events: { event: (_about, _type, reason) => void state.told.push(reason) },
    podCache: { get: () => state.cached, list: () => (state.cached ? [state.cached] : []) },
    desired: {
      get: (id) => state.pods.find((one) => one.metadata.uid === id),
      byName: () => undefined,
      list: () => state.pods,
    },
    status: { get: () => state.held },
    apiPods: { get: () => state.mirror && apiPod({ ...pod, status: state.mirror }) },
    signals: { wakeWorker: { send: (id, cause) => void state.woken.push(`${id} ${cause}`) } },
    agentStartedAt: begun - agentAgeMs,
  });
  const run = (
    containerState: ContainerState = ContainerState.CONTAINER_RUNNING,
    more: Partial<ContainerStatus> = {},
  ): string => {
    const shown = aStatus(container, containerState, { startedAt: BigInt(still.now()) * 1_000_000n, ...more });
    state.cached = observe([aSandbox()], [shown, ...(state.cached?.containers ?? [])]);
    return shown.id;
  };
  const ready = (id: string) => probes.readiness(uid, "c", `containerd://${id}`);
  const started = (id: string) => probes.started(uid, "c", id);
  const condemnedBy = (id: string) => probes.failedProbe(uid, "c", id);
  /** Removes the pod's record. */
  const endRow = () => ends.forEach((hear) => hear(uid));
  return { probes, lost, endRow, pod, clock: still, state, run, ready, started, condemnedBy };
}
