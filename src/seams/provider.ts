import type { Clock } from "../lib/clock.ts";
import { CodedError, type ErrorCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "./host.ts";
import type { Runtime } from "./runtime.ts";

/** `exclusive`: every pod in the runtime is this node's, and what the API server does not know is cleaned up, as a kubelet
 *  does. `shared`: the node touches only what carries its label `graftlet.dev/node`. */
export type Sharing = "exclusive" | "shared";

/** Every word for why a target is out of reach, or why a node cannot start on it; docs/operations.md says of each what to do. */
export const troubleReasons = [
  "LinkDown",
  "TurnedAway",
  "HostKeyMismatch",
  "HostKeyUnknown",
  "LoginRefused",
  "NoSessions",
  "LoginShellHangs",
  "NoPosixShell",
  "NoSftp",
  "RuntimeInUse",
  "RootDirFull",
  "RootDirUnusable",
  "TargetUnreadable",
  "TargetWithoutAddress",
  "SwapOn",
  "CgroupV1",
  "NodeNotStarted",
] as const;
export type TroubleReason = (typeof troubleReasons)[number];

/** Reason for an unreachable target: a word for the node's Ready condition, and a sentence with the remedy. */
export interface LinkTrouble {
  readonly reason: TroubleReason;
  readonly message: string;
}

/** Reason that a node cannot start on a reachable target, to be fixed there: a word for the node's Ready condition, and a
 *  sentence with the remedy. */
export class TargetError extends CodedError implements LinkTrouble {
  readonly reason: TroubleReason;
  constructor(reason: TroubleReason, code: ErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "TargetError";
    this.reason = reason;
  }
}

/** The way to a target that is not the machine graftlet runs on. */
export interface TargetLink {
  /** Undefined while the target can be reached, and while that is being found out. */
  trouble(): LinkTrouble | undefined;
  /** Number of lost connections to the target so far: calls on a lost one have failed, though other connections may stand. */
  losses(): number;
  /** Calls back whenever the answer may have changed. @returns what stops that. */
  onChange(listener: () => void): () => void;
}

/** The network of a target's pods, where it may not be the cluster's. */
export interface TargetNetwork {
  /** Pods reach neither the cluster's other pods nor its Services, and so not its DNS. */
  readonly isolated: boolean;
  /** Address at which pods reach the API server, in place of the Service `kubernetes`. */
  readonly kubernetesService?: { readonly host: string; readonly port: number };
}

/** Pod features that not every target allows: `fileOwner`, files that belong to the pod's user; `mount`, mounts that the node
 *  makes for them. */
const targetFeatures = ["fileOwner", "mount"] as const;
export type TargetFeature = (typeof targetFeatures)[number];

/** True for a feature of the target rather than the runtime. */
export function isTargetFeature(feature: string): feature is TargetFeature {
  return (targetFeatures as readonly string[]).includes(feature);
}

/** Rights that graftlet's login lacks on the target. */
export interface MissingRights {
  /** A sentence each, with the remedy; none when nothing is missing. */
  readonly sentences: readonly string[];
  /** Features that pods lack because of it, each with a sentence that says why. */
  readonly lacks: Readonly<Partial<Record<TargetFeature, string>>>;
}

/** A node's target. Disposing of it closes connections and touches no pod. */
export interface Target extends AsyncDisposable {
  readonly host: Host;
  readonly runtime: Runtime;
  readonly sharing: Sharing;
  /** Present where the target is another machine: pods have its addresses, the kubelet API those of the machine that
   *  graftlet runs on. */
  readonly link?: TargetLink;
  /** Absent where pods are on the cluster's network by the runtime's own means. */
  readonly network?: TargetNetwork;
  /** Absent where graftlet has the rights of its own process. Cheap to ask again and again.
   *  @throws unavailable while the target is out of reach. */
  missingRights?(signal: AbortSignal): Promise<MissingRights>;
  /** Absolute path, on the target, of the socket that the runtime answers on; absent where there is none. Cheap to ask again.
   *  @throws while it is not known, since no runtime was found yet or the target is out of reach. */
  runtimeSocket?(signal: AbortSignal): Promise<string>;
  /** The kubelet's root directory on the target, where the provider's own configuration names one. */
  readonly rootDir?: string;
}

export interface ContainerLogLimits {
  readonly maxSizeBytes: number;
  readonly maxFiles: number;
}

export interface ProviderOptions {
  /** The node's `providerConfig`, not yet validated: the provider knows its own fields. */
  readonly config: unknown;
  /** KubeletConfiguration.containerRuntimeEndpoint and imageServiceEndpoint; the provider's own fields win. */
  readonly containerRuntimeEndpoint: string;
  readonly imageServiceEndpoint: string;
  /** KubeletConfiguration.runtimeRequestTimeout, milliseconds: the deadline of an ordinary call. */
  readonly requestTimeoutMs: number;
  /** KubeletConfiguration.containerLogMaxSize and containerLogMaxFiles, for runtimes that rotate logs themselves. */
  readonly containerLogs: ContainerLogLimits;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Gives a node its target. Does not wait for the target to answer: a runtime that is not there yet is `unavailable` on each
 *  call. @throws CodedError invalid_argument, one sentence that names the field and the remedy. */
export type ProviderFactory = (options: ProviderOptions) => Promise<Target>;
