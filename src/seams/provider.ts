import { CodedError, type ErrorCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Host } from "./host.ts";
import type { Runtime } from "./runtime.ts";

/** `exclusive`: every pod in the runtime belongs to this node, and pods unknown to the API server are cleaned up, as by a kubelet.
 *  `shared`: the node manages only pods that have its label `graftlet.dev/node`. */
export type Sharing = "exclusive" | "shared";

/** Reasons why a target is unreachable, or why a node cannot start on it; docs/troubleshooting.md has the remedy for each. */
export const troubleReasons = [
  "LinkDown",
  "ConnectionRejected",
  "HostKeyMismatch",
  "HostKeyUnknown",
  "LoginRefused",
  "SudoNeedsPassword",
  "CertificateInvalid",
  "NoSessions",
  "LoginShellTimeout",
  "NoPosixShell",
  "LoginInChroot",
  "NoSftp",
  "ReverseTunnelDown",
  "LimitExceeded",
  "OtherMachine",
  "RuntimeInUse",
  "RootDirTaken",
  "Superseded",
  "RootDirFull",
  "RootDirUnusable",
  "TargetUnreadable",
  "TargetAddressUnknown",
  "SwapEnabled",
  "CgroupV1",
  "CgroupSubsystemMissing",
  "KernelSettings",
  "CPUManager",
  "TopologyManager",
  "MemoryManager",
  "NodeAllocatable",
  "NodeNotStarted",
] as const;
export type TroubleReason = (typeof troubleReasons)[number];

/** Reason and message (a sentence with the remedy) of an unreachable target, for the node's Ready condition. */
export interface LinkTrouble {
  readonly reason: TroubleReason;
  readonly message: string;
}

/** Reason and message (a sentence with the remedy) when a node cannot start on a reachable target, for the node's Ready condition. The
 *  problem has to be fixed on the target. */
export class TargetError extends CodedError implements LinkTrouble {
  readonly reason: TroubleReason;
  constructor(reason: TroubleReason, code: ErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "TargetError";
    this.reason = reason;
  }
}

/** The link to a remote target. */
export interface TargetLink {
  /** Undefined while the target is reachable, or before the first check. */
  trouble(): LinkTrouble | undefined;
  /** Total number of lost connections. Calls on a lost connection have failed, even if other connections are still up. */
  losses(): number;
  /** Registers a listener for changes of `trouble` and `losses`. @returns a function that removes it. */
  onChange(listener: () => void): () => void;
}

/** The pod network of a target that may not be part of the cluster's network. */
export interface TargetNetwork {
  /** True when pods reach neither the cluster's other pods nor its Services, including its DNS. */
  readonly isolated: boolean;
  /** True when pods reach Services only through the link (the service tunnel); nothing in the cluster can reach the pods. */
  readonly tunneled?: boolean;
  /** True for `network: auto`: a node that is new on its target becomes tunneled if the target supports it. Isolated until resolved. */
  readonly auto?: boolean;
  /** A sentence that says why `network: auto` was resolved to isolated. */
  readonly obstacle?: string;
  /** Namespaces whose Services tunneled pods reach, in addition to the API server and the cluster's DNS; absent for all. */
  readonly serviceNamespaces?: readonly string[];
  /** Address at which pods reach the API server, instead of the Service `kubernetes`. */
  readonly kubernetesService?: { readonly host: string; readonly port: number };
}

/** True when pods are not in the cluster's network. */
export function hasOwnNetwork(network: TargetNetwork | undefined): boolean {
  return network?.isolated === true || network?.tunneled === true;
}

/** Pod features that depend on the target: `fileOwner`, changing the owner of a pod's files; `mount`, mounting volumes on the target. */
const targetFeatures = ["fileOwner", "mount"] as const;
export type TargetFeature = (typeof targetFeatures)[number];

/** True for a feature that depends on the target rather than on the runtime. */
export function isTargetFeature(feature: string): feature is TargetFeature {
  return (targetFeatures as readonly string[]).includes(feature);
}

/** Privileges that graftlet's login lacks on the target. */
export interface MissingPrivileges {
  /** One sentence per missing privilege, with the remedy. */
  readonly messages: readonly string[];
  /** True if the login is not root because sudo asks for a password; the first message says so. */
  readonly sudoNeedsPassword?: boolean;
  /** Pod features that are unsupported because of it, with a sentence that says why. */
  readonly unsupported: Readonly<Partial<Record<TargetFeature, string>>>;
}

/** A node's target. Disposing of it closes connections and leaves pods running. */
export interface Target extends AsyncDisposable {
  readonly host: Host;
  readonly runtime: Runtime;
  readonly sharing: Sharing;
  /** Present for a remote target: pods use the target's addresses, the kubelet API those of graftlet's machine. */
  readonly link?: TargetLink;
  /** Absent when the runtime connects pods to the cluster's network. */
  readonly network?: TargetNetwork;
  /** Absent when graftlet uses the privileges of its own process. Cheap to call repeatedly.
   *  @throws unavailable while the target is unreachable. */
  missingPrivileges?(signal: AbortSignal): Promise<MissingPrivileges>;
  /** Absolute path of the runtime's socket on the target; absent when there is none. Cheap to call repeatedly.
   *  @throws while no runtime has been detected yet, or the target is unreachable. */
  runtimeSocket?(signal: AbortSignal): Promise<string>;
  /** The kubelet's root directory on the target, if the provider's configuration sets one. */
  readonly rootDir?: string;
}

export interface ContainerLogLimits {
  readonly maxSizeBytes: number;
  readonly maxFiles: number;
}

export interface ProviderOptions extends ClockAndLog {
  /** The node's `providerConfig`, not yet validated: the provider validates its own fields. */
  readonly config: unknown;
  /** KubeletConfiguration.containerRuntimeEndpoint and imageServiceEndpoint; the provider's own fields take precedence. */
  readonly containerRuntimeEndpoint: string;
  readonly imageServiceEndpoint: string;
  /** KubeletConfiguration.runtimeRequestTimeout, milliseconds: the deadline of an ordinary call. */
  readonly requestTimeoutMs: number;
  /** KubeletConfiguration.containerLogMaxSize and containerLogMaxFiles, for runtimes that rotate logs themselves. */
  readonly containerLogs: ContainerLogLimits;
  readonly nodeName: string;
  /** Headers with the trace context for the next call to a CRI runtime; absent when tracing is disabled. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
}

/** Opens a node's target without waiting until it is reachable: calls to a missing runtime fail with `unavailable`.
 *  @throws CodedError invalid_argument, one sentence that names the field and the remedy. */
export type ProviderFactory = (options: ProviderOptions) => Promise<Target>;
