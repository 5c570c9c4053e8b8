import type { Hears, NodeSignals, Sends } from "../state/signals.ts";
import type { NodeState } from "./node-state.ts";

// The node on one page: every actor that shares state with others, in start order. An actor gets only the columns and
// signals that it names here and no others; the compiler holds the composition to it.

type Part = keyof NodeState;
type SignalName = keyof NodeSignals;

interface Wires {
  readonly reads?: readonly Part[];
  /** Each part of the state has one writer. */
  readonly writes?: readonly Part[];
  readonly sends?: readonly SignalName[];
  readonly hears?: readonly SignalName[];
}

/** Reads, writes and signals of each actor. */
export const wiring = {
  kubeletServer: { reads: ["asked", "seen", "status", "takenIn"] },
  metrics: { reads: ["asked", "seen", "worker", "resize", "reachable"] },
  report: { reads: ["asked", "status"] },
  nodeWatch: { sends: ["nodeChanged", "mirrorsChanged"] },
  serviceWatch: { sends: ["retry"] },
  targetLink: { sends: ["nodeChanged"] },
  runtimeHealth: { sends: ["nodeChanged"] },
  devices: { reads: ["asked", "seen", "status", "takenIn"], sends: ["nodeChanged", "wake"] },
  clusterWay: { reads: ["seen"], sends: ["nodeChanged"] },
  servicePublisher: { reads: ["shown", "seen"] },
  storageDrivers: { sends: ["nodeChanged"] },
  nodeAgent: { reads: ["reachable", "pressure", "goingDown", "inUse"], hears: ["nodeChanged"] },
  pleg: { writes: ["seen"], sends: ["wake", "retry"] },
  placeholders: { reads: ["seen", "status"] },
  statusManager: { reads: ["shown", "worker"], writes: ["status", "held"] },
  statusGenerator: { reads: ["status", "starts", "resize"] },
  probes: { reads: ["asked", "shown", "seen", "status", "starts"], sends: ["wake"] },
  allocations: { reads: ["seen"], writes: ["allocation"] },
  resizes: { reads: ["asked", "spoken"], writes: ["resize", "pending", "wishes"], sends: ["weigh"] },
  admission: { reads: ["pressure", "goingDown"] },
  preemption: { reads: ["worker"], sends: ["end"] },
  cgroups: { reads: ["asked", "seen", "worker"] },
  volumes: { writes: ["inUse"], sends: ["nodeChanged"] },
  podRuntime: { reads: ["status"], writes: ["starts"] },
  podWorkers: {
    reads: ["seen"],
    writes: ["worker", "unseen"],
    sends: ["mirrorsChanged"],
    hears: ["wake", "retry", "end"],
  },
  podManager: { writes: ["asked", "shown"] },
  syncLoop: {
    reads: ["asked", "seen", "worker"],
    writes: ["takenIn"],
    sends: ["wake", "mirrorsChanged"],
    hears: ["weigh"],
  },
  sources: { reads: ["seen"], writes: ["spoken"] },
  mirrorPods: { reads: ["asked", "worker", "spoken"], hears: ["mirrorsChanged"] },
  housekeeping: { reads: ["asked", "seen", "worker", "spoken"] },
  garbage: { reads: ["asked", "seen", "worker"] },
  imageCollection: { reads: ["seen"] },
  logRotation: { reads: ["seen"] },
  eviction: { reads: ["asked", "seen", "worker"], writes: ["pressure"], sends: ["end", "nodeChanged"] },
  shutdown: { reads: ["asked", "seen", "worker"], writes: ["goingDown"], sends: ["end", "nodeChanged"] },
  resizeRetry: { sends: ["weigh"] },
  stats: { reads: ["asked", "seen"] },
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

/** State and signals of an actor: readers, writers and signals by name. */
export type Handed<Name extends ActorName> = Readers<NodeState, Part & Names<(typeof wiring)[Name], "reads">> &
  Writers<NodeState, Part & Names<(typeof wiring)[Name], "writes">> & {
    readonly signals: Sends<SignalName & Names<(typeof wiring)[Name], "sends">> &
      Hears<SignalName & Names<(typeof wiring)[Name], "hears">>;
  };

/** Returns the state and signals that the wiring lists for an actor. */
export type HandOut = <Name extends ActorName>(name: Name) => Handed<Name>;

/** Hands out a node's state and signals as the wiring says. What it returns throws when a column would get a second writer. */
export function handOut(state: NodeState, signals: NodeSignals): HandOut {
  const written = new Set<Part>();
  return <Name extends ActorName>(name: Name) => {
    const { reads = [], writes = [], sends = [], hears = [] }: Wires = wiring[name];
    const ends: Record<string, unknown> = { signals: pick(signals, [...sends, ...hears]) };
    for (const part of reads) ends[part] = state[part].reader;
    for (const part of writes) {
      if (written.has(part)) throw new Error(`${name}: column ${part} has a writer already`);
      written.add(part);
      ends[part] = state[part].writer;
    }
    return ends as Handed<Name>;
  };
}

function pick(signals: NodeSignals, names: readonly SignalName[]): Partial<NodeSignals> {
  return Object.fromEntries(names.map((name) => [name, signals[name]]));
}
