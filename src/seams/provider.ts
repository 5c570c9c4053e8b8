import type { Clock } from "../lib/clock.ts";
import { CodedError, type ErrorCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "./host.ts";
import type { Runtime } from "./runtime.ts";

/** `exclusive`: every pod in the runtime is this node's, and what the API server does not know is cleaned up, as a kubelet
 *  does. `shared`: the node touches only what carries its label `graftlet.dev/node`. */
export type Sharing = "exclusive" | "shared";

/** All reasons for an unreachable target, or for a node that cannot start on it; docs/troubleshooting.md has the remedy for each. */
export const troubleReasons = [
  "LinkDown",
  "TurnedAway",
  "HostKeyMismatch",
  "HostKeyUnknown",
  "LoginRefused",
  "CertificateInvalid",
  "NoSessions",
  "LoginShellHangs",
  "NoPosixShell",
  "NoSftp",
  "NotDialledIn",
  "LimitExceeded",
  "RuntimeInUse",
  "RootDirFull",
  "RootDirUnusable",
  "TargetUnreadable",
  "TargetWithoutAddress",
  "SwapOn",
  "CgroupV1",
  "CgroupSubsystem",
  "NodeAllocatable",
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

/** The link to a target that is not graftlet's own machine. */
export interface TargetLink {
  /** Undefined while the target is reachable, or not yet checked. */
  trouble(): LinkTrouble | undefined;
  /** Number of lost connections to the target so far: calls on a lost one have failed, though other connections may stand. */
  losses(): number;
  /** Calls back whenever the answer may have changed. @returns what stops that. */
  onChange(listener: () => void): () => void;
}

/** The network of a target's pods, where it may not be the cluster's. */
export interface TargetNetwork {
  /** True when pods reach neither the cluster's other pods nor its Services, including its DNS. */
  readonly isolated: boolean;
  /** True when they reach Services over the link alone; it carries nothing from the cluster to them. */
  readonly tunneled?: boolean;
  /** True where the configuration leaves it open: a node that is new on its target is tunneled if it can be. Isolated until that is
   *  settled. */
  readonly auto?: boolean;
  /** Why pods are isolated though nobody asked for it, in a sentence. */
  readonly obstacle?: string;
  /** The only namespaces whose Services they reach so, beside the API server and the cluster's DNS; absent for all. */
  readonly serviceNamespaces?: readonly string[];
  /** Address at which pods reach the API server, in place of the Service `kubernetes`. */
  readonly kubernetesService?: { readonly host: string; readonly port: number };
}

/** True where pods are not in the cluster's network. */
export function hasOwnNetwork(network: TargetNetwork | undefined): boolean {
  return network?.isolated === true || network?.tunneled === true;
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
  /** A sentence for each missing right, with the remedy. */
  readonly sentences: readonly string[];
  /** Features that pods lack because of it, each with a sentence that says why. */
  readonly lacks: Readonly<Partial<Record<TargetFeature, string>>>;
}

/** A node's target. Disposing of it closes connections and touches no pod. */
export interface Target extends AsyncDisposable {
  readonly host: Host;
  readonly runtime: Runtime;
  readonly sharing: Sharing;
  /** Present when the target is another machine: pods have its addresses, the kubelet API those of graftlet's machine. */
  readonly link?: TargetLink;
  /** Absent when the runtime connects pods to the cluster's network. */
  readonly network?: TargetNetwork;
  /** Absent when graftlet has the rights of its own process. Cheap to call repeatedly.
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
  /** Headers for the next call to a CRI runtime, which carry its trace; absent if nothing is traced. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Opens a node's target, without waiting for it: calls to a missing runtime fail with `unavailable`.
 *  @throws CodedError invalid_argument, one sentence that names the field and the remedy. */
export type ProviderFactory = (options: ProviderOptions) => Promise<Target>;
