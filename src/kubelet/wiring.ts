import type { Clock } from "../lib/clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { ReachableState } from "../node/conditions.ts";
import type { NodePressure, SourceName } from "../pipeline.ts";
import { createPodTable } from "../state/pod-table.ts";
import type { NodeSignals, Sends, Subscribes } from "../state/signals.ts";
import { createSourceMilestone, createValue } from "../state/values.ts";

// The node on one page: every actor that shares state with others, in start order. An actor gets only the columns and
// signals that it names here and no others; the compiler checks this.

/** Creates the state of a node, before its actors. Each part has a reader and a writer; the wiring says which actor gets which.
 *  @param sources pod sources of the node. */
export function createNodeState(clock: Clock, sources: readonly SourceName[]) {
  const { privateColumn, onEnd, ...columns } = createPodTable(clock);
  const state = {
    ...columns,
    /** Sources that have reported. */
    sourcesReady: createSourceMilestone(sources),
    /** Sources whose first report has been processed. */
    sourcesSynced: createSourceMilestone(sources),
    pressure: createValue<NodePressure>(),
    /** Result of the self-test from the API server to the kubelet API. */
    reachable: createValue<ReachableState>(),
    /** The target is about to shut down. */
    shuttingDown: createValue<true>(),
    /** Attachable volumes in use, as in Node.status.volumesInUse; undefined until volumes of an earlier process have been recovered. */
    volumesInUse: createValue<readonly string[]>(),
  };
  return { state, privateColumn, onEnd };
}

export type NodeState = ReturnType<typeof createNodeState>["state"];

type Part = keyof NodeState;
type SignalName = keyof NodeSignals;

interface Wires {
  readonly reads?: readonly Part[];
  /** Each part of the state has one writer. */
  readonly writes?: readonly Part[];
  readonly sends?: readonly SignalName[];
  readonly subscribes?: readonly SignalName[];
}

/** Reads, writes and signals of each actor. */
export const wiring = {
  kubeletServer: { reads: ["desired", "podCache", "status", "sourcesSynced"] },
  metrics: { reads: ["desired", "podCache", "worker", "status", "resize", "reachable"] },
  podsApi: { reads: ["desired", "worker", "status"] },
  report: { reads: ["desired", "status"] },
  nodeWatch: { sends: ["nodeChanged", "mirrorsChanged"] },
  serviceWatch: { sends: ["retryFailedPods"] },
  targetLink: { sends: ["nodeChanged"] },
  runtimeHealth: { sends: ["nodeChanged"] },
  devices: { reads: ["desired", "podCache", "status", "sourcesSynced"], sends: ["nodeChanged", "wakeWorker"] },
  cpus: { reads: ["desired", "podCache", "worker", "sourcesSynced"] },
  memoryManager: { reads: ["desired", "worker", "sourcesSynced"] },
  dra: { reads: ["desired", "worker", "sourcesSynced"], sends: ["wakeWorker"] },
  serviceTunnel: { reads: ["podCache"], sends: ["nodeChanged"] },
  servicePublisher: { reads: ["apiPods", "podCache"] },
  csiDrivers: { sends: ["nodeChanged"] },
  nodeAgent: {
    reads: ["desired", "status", "reachable", "pressure", "shuttingDown", "volumesInUse"],
    subscribes: ["nodeChanged"],
  },
  pleg: { writes: ["podCache"], sends: ["wakeWorker", "retryFailedPods"] },
  placeholders: { reads: ["podCache", "status"] },
  statusManager: { reads: ["apiPods", "worker"], writes: ["status"] },
  statusGenerator: { reads: ["status", "starts", "resize"] },
  probes: { reads: ["desired", "apiPods", "podCache", "status", "starts"], sends: ["wakeWorker"] },
  allocations: { reads: ["podCache"] },
  resizes: { reads: ["desired", "sourcesReady"], writes: ["resize"], sends: ["retryPendingResizes"] },
  admission: { reads: ["pressure", "shuttingDown"] },
  preemption: { reads: ["worker"], sends: ["terminatePod"] },
  cgroups: { reads: ["desired", "podCache", "worker"] },
  volumes: { writes: ["volumesInUse"], sends: ["nodeChanged"] },
  podRuntime: { reads: ["status"], writes: ["starts"] },
  passes: { reads: ["podCache"] },
  podWorkers: {
    writes: ["worker"],
    sends: ["mirrorsChanged"],
    subscribes: ["wakeWorker", "retryFailedPods", "terminatePod"],
  },
  podManager: { writes: ["desired", "apiPods"] },
  syncLoop: {
    reads: ["desired", "podCache", "worker"],
    writes: ["sourcesSynced"],
    sends: ["wakeWorker", "mirrorsChanged"],
    subscribes: ["retryPendingResizes"],
  },
  sources: { reads: ["podCache"], writes: ["sourcesReady"] },
  mirrorPods: { reads: ["desired", "worker", "sourcesReady"], subscribes: ["mirrorsChanged"] },
  housekeeping: { reads: ["desired", "podCache", "worker", "sourcesReady"] },
  garbage: { reads: ["desired", "podCache", "worker"] },
  imageCollection: { reads: ["podCache"] },
  logRotation: { reads: ["podCache"] },
  eviction: { reads: ["desired", "podCache", "worker"], writes: ["pressure"], sends: ["terminatePod", "nodeChanged"] },
  shutdown: {
    reads: ["desired", "podCache", "worker"],
    writes: ["shuttingDown"],
    sends: ["terminatePod", "nodeChanged"],
  },
  resizeRetry: { sends: ["retryPendingResizes"] },
  stats: { reads: ["desired", "podCache"] },
  selfTest: { writes: ["reachable"], sends: ["nodeChanged"] },
} as const satisfies Readonly<Record<string, Wires>>;

export type ActorName = keyof typeof wiring;

type Names<W, K extends keyof Wires> = W extends { readonly [Key in K]: readonly (infer N)[] } ? N : never;

// Both map over a type parameter, so that an editor finds and renames a part of the state in the actors that use it.
type Readers<S extends { [P in keyof S]: { readonly reader: unknown } }, K extends keyof S> = {
  readonly [P in K]: S[P]["reader"];
};
type Writers<S extends { [P in keyof S]: { readonly writer: unknown } }, K extends keyof S> = {
  readonly [P in K]: S[P]["writer"];
};

/** The parts of an actor: its readers and writers of the state, by name, its signals, and the node's clock and log. */
export type ActorParts<Name extends ActorName> = ClockAndLog &
  Readers<NodeState, Part & Names<(typeof wiring)[Name], "reads">> &
  Writers<NodeState, Part & Names<(typeof wiring)[Name], "writes">> & {
    readonly signals: Sends<SignalName & Names<(typeof wiring)[Name], "sends">> &
      Subscribes<SignalName & Names<(typeof wiring)[Name], "subscribes">>;
  };

/** Returns the state and signals that the wiring lists for an actor, for its dependencies. */
export type PartsOf = <Name extends ActorName>(name: Name) => ActorParts<Name>;

/** Returns a function that gives each actor the state and signals that the wiring lists for it. The function throws if a column
 *  would get a second writer. */
export function wireActors(state: NodeState, signals: NodeSignals, { clock, log }: ClockAndLog): PartsOf {
  const written = new Set<Part>();
  return <Name extends ActorName>(name: Name) => {
    const { reads = [], writes = [], sends = [], subscribes = [] }: Wires = wiring[name];
    const names = [...sends, ...subscribes];
    const parts: Record<string, unknown> = { clock, log };
    parts["signals"] = Object.fromEntries(names.map((signal) => [signal, signals[signal]]));
    for (const part of reads) parts[part] = state[part].reader;
    for (const part of writes) {
      if (written.has(part)) throw new Error(`${name}: column ${part} already has a writer`);
      written.add(part);
      parts[part] = state[part].writer;
    }
    return parts as unknown as ActorParts<Name>;
  };
}
