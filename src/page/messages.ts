// Messages to the page, as JSON: the browser's code knows only these types. Times are milliseconds since the epoch on graftlet's clock,
// sizes are bytes, CPU is in cores.

import type { FleetReport, MachineReport, ReplicaReport } from "../report/fleet-report.ts";
import type { Note } from "../report/notes.ts";

export type { MachineReport, Note, ReplicaReport };

export type Message =
  | {
      readonly kind: "hello";
      readonly version: string;
      readonly now: number;
      readonly nodes: readonly string[];
      /** True if messages about the release follow. */
      readonly fleet: boolean;
    }
  | { readonly kind: "node"; readonly node: NodeView }
  | { readonly kind: "pods"; readonly node: string; readonly pods: readonly PodView[] }
  | { readonly kind: "usage"; readonly node: string; readonly usage: UsageView }
  | { readonly kind: "notes"; readonly notes: readonly Note[] }
  | FleetMessage
  | { readonly kind: "machine"; readonly machine: MachineReport };

/** The release, with the names of the machines that other replicas serve, or nobody. */
export interface FleetMessage extends Omit<FleetReport, "machines"> {
  readonly kind: "fleet";
  readonly machines: readonly string[];
}

export interface NodeView {
  readonly name: string;
  readonly provider: string;
  /** Summary of the node's state, which `why` explains. */
  readonly state: "Ready" | "NotReady" | "Starting";
  readonly why: string;
  /** `local`, `up`, `unknown` before the first connection, or the reason why the target is unreachable. */
  readonly link: string;
  readonly conditions: readonly ConditionView[];
  readonly version: string;
  readonly os: string;
  readonly address: string;
  readonly cpus: number;
  readonly memory: number;
  readonly maxPods: number;
  /** Number and total size of the images that the Node lists. */
  readonly images: number;
  readonly imageBytes: number;
}

export interface ConditionView {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  /** True if this status needs attention. */
  readonly bad: boolean;
}

export interface PodView {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** Status of the pod, as in kubectl's STATUS column. */
  readonly status: string;
  readonly bad: boolean;
  readonly ready: number;
  readonly of: number;
  readonly restarts: number;
  readonly since: number;
}

/** One sample of a node, its pods and their containers. */
export interface UsageView {
  readonly at: number;
  readonly node: Measure;
  readonly disk?: Space;
  readonly imageDisk?: Space;
  readonly pods: Readonly<Record<string, PodMeasure>>;
}

export interface PodMeasure extends Measure {
  readonly containers: Readonly<Record<string, Measure>>;
}

/** Unknown values are absent. `rx` and `tx` are totals in bytes. */
export interface Measure {
  readonly cpu?: number;
  readonly memory?: number;
  readonly rx?: number;
  readonly tx?: number;
  readonly disk?: number;
}

export interface Space {
  readonly used: number;
  readonly capacity: number;
}
