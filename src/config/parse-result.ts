import type { FleetConfig } from "./fleet-configuration.ts";
import type { Warning } from "./graftlet-configuration.ts";
import type { Endpoint } from "./process-endpoints.ts";
import type { Logging } from "./kubelet-groups.ts";
import type { NodeConfig } from "./node-config.ts";
import type { TextMap } from "./value-types.ts";

/** Result of parsing a command line. */
export type ParseResult =
  | { readonly kind: "help"; readonly text: string }
  | { readonly kind: "version"; readonly text: string }
  | {
      readonly kind: "run";
      readonly nodes: readonly NodeConfig[];
      /** Machines that are objects of the cluster. */
      readonly fleet?: FleetConfig | undefined;
      /** The Helm release that shows its nodes as objects of the cluster; undefined if they are not shown. */
      readonly nodeObjects?: { readonly release: string } | undefined;
      readonly logging: Logging;
      /** The values of all flags, by flag. */
      readonly flags: TextMap;
      readonly warnings: readonly Warning[];
      /** Clauses about default kubelet features that are not supported yet: the actual behaviour of each. */
      readonly defaults: readonly string[];
      /** True with --nodes: a node that fails is retried and does not affect the others. */
      readonly several: boolean;
      /** Health endpoint of the process, in addition to those of its nodes. */
      readonly health: Endpoint | undefined;
      /** The status page of the process's nodes. */
      readonly page: Endpoint | undefined;
      /** The metrics of the process's GraftedNodes. */
      readonly metrics?: Endpoint | undefined;
      /** Path of the socket for `graftlet status`; undefined for none. */
      readonly statusSocket: string | undefined;
    }
  | {
      readonly kind: "status";
      /** Path of the running process' socket. */
      readonly socket: string;
      /** The only node to show; undefined for all. */
      readonly node: string | undefined;
      readonly output: "text" | "json";
    }
  | EnrolCommand
  | JoinCommand
  | {
      readonly kind: "remove";
      /** The node to remove; its kubeconfig is not read. */
      readonly node: NodeConfig;
      /** True to skip the confirmation. */
      readonly yes: boolean;
    }
  | {
      readonly kind: "leave";
      /** The nodes that leave; their kubeconfigs are not read. */
      readonly nodes: readonly NodeConfig[];
      /** The fleet whose GraftedNodes leave first; undefined outside a Pod, and without a fleet. */
      readonly fleet: Pick<FleetConfig, "mayHave"> | undefined;
      /** The administrator's kubeconfig; undefined in a Pod, which uses its service account. */
      readonly kubeconfig: string | undefined;
      /** Deployment that runs graftlet; the default namespace is the Pod's. */
      readonly deployment: { readonly namespace: string | undefined; readonly name: string } | undefined;
      /** Time limit for pods to end, milliseconds. */
      readonly timeoutMs: number;
      /** True to skip the confirmation. */
      readonly yes: boolean;
    }
  | {
      readonly kind: "doctor";
      /** The nodes to examine; their kubeconfigs are not read. */
      readonly nodes: readonly NodeConfig[];
      /** The fleet whose GraftedNodes are examined too: all, or the one named by --node; undefined outside a Pod, without a fleet,
       *  and if --node names a node of the file. */
      readonly fleet: { readonly config: FleetConfig; readonly node: string | undefined } | undefined;
      /** Kubeconfig for the checks of the cluster; undefined to check only the targets, or in a Pod. */
      readonly kubeconfig: string | undefined;
      /** Endpoints of the process that runs the nodes. */
      readonly process: ServedByProcess;
      readonly output: "text" | "json";
      /** Manifest of a pod or workload to check instead of targets and cluster. */
      readonly manifest: Readonly<Record<string, unknown>> | undefined;
    };

/** Parsed options of a command. */
export type OptionsOf<Kind extends ParseResult["kind"]> = Omit<Extract<ParseResult, { kind: Kind }>, "kind">;

/** Endpoints of a graftlet process, in addition to those of its nodes; undefined ones are disabled. */
export interface ServedByProcess {
  readonly health: Endpoint | undefined;
  readonly page: Endpoint | undefined;
  /** Path of the socket for `graftlet status`. */
  readonly statusSocket: string | undefined;
}

/** `graftlet --fleet`: becomes a replica of a release from outside the cluster. */
export interface JoinCommand {
  readonly kind: "join";
  readonly namespace: string;
  /** The Helm release. */
  readonly release: string;
  /** Kubeconfig of the replica's ServiceAccount. */
  readonly kubeconfig: string;
  readonly logging: Logging;
  /** Completes the command line with the replica's configuration, which the release keeps in the cluster. @param source names it in
   *  messages. @throws CodedError invalid_argument */
  complete(source: string, configuration: string): OptionsOf<"run">;
}

/** `graftlet enrol`: creates the one-time token with which a machine enrols as the machine of a GraftedNode. */
export interface EnrolCommand {
  readonly kind: "enrol";
  readonly nodeName: string;
  readonly fleet: FleetConfig;
  /** Where the machine reaches the listener. */
  readonly address: { readonly host: string; readonly port: number };
  /** Lifetime of the token, milliseconds. */
  readonly validForMs: number;
  /** True if the token alone is enough, so that the machine needs no approval. */
  readonly isApproved: boolean;
}
