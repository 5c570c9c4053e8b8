import type { ApiClient } from "../api/client.ts";
import type { AccessFile } from "../api/kubeconfig.ts";
import type { EndpointWatch, NodeWatch, ServiceWatch } from "../api/listers.ts";
import type { ObjectCaches } from "../api/objects.ts";
import type { ServiceAccounts } from "../api/service-accounts.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import type { TokenSource } from "../api/tokens.ts";
import type { Approve } from "../certificates/approver.ts";
import type { PairStore } from "../certificates/pair-store.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { Devices } from "../devices/devices.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { Claims, StorageDrivers } from "../drivers.ts";
import type { Fence } from "../seams/fenced.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { Tracer } from "../lib/tracer.ts";
import type { Verbosity } from "../lib/verbosity.ts";
import type { NodeMetrics } from "../metrics/node-metrics.ts";
import type { TunnelPlaces } from "../network/places.ts";
import type { ClusterWay } from "../network/way.ts";
import type { NodeAgent } from "../node/node-agent.ts";
import type { Liveness } from "../node/liveness.ts";
import type { Readiness } from "../node/readiness.ts";
import type { NodeTelling } from "../report/node.ts";
import type { RuntimeHealth } from "../node/runtime-health.ts";
import type { TargetRights } from "../node/target-rights.ts";
import type { EventSink, LogReader, Presence, RuntimeClasses } from "../pipeline.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { OpenNodeCgroups } from "../resources/node-cgroups.ts";
import type { Enforcement, ReservedCgroups } from "../resources/reserved-cgroups.ts";
import type { Pleg } from "../pleg/pleg.ts";
import type { Target } from "../seams/provider.ts";
import type { Strangers } from "../server/strangers.ts";
import type { HandOut } from "./wiring.ts";

/** The locks that make the target this node's. */
export interface TargetClaim extends Fence {
  /** Takes the locks again where they were lost; makes sure of them otherwise.
   *  @throws TargetError RuntimeInUse when another agent has taken them meanwhile. */
  renew(signal: AbortSignal): Promise<void>;
  /** True while they are lost, and not taken again. */
  isLost(): boolean;
  /** Calls back when they are lost. @returns what stops that. */
  onLost(listener: () => void): () => void;
}

/** A node's world: what it is configured to be, and what it works with. */
export interface KubeletDeps {
  readonly config: NodeConfig;
  readonly target: Target;
  readonly claim: TargetClaim;
  readonly client: ApiClient;
  /** There is no API server: pods come from files and URLs, and the log and the kubelet API tell of them. */
  readonly alone: boolean;
  /** The Pod's service account, where graftlet runs as one. */
  readonly account?: { readonly client: ApiClient };
  /** As whom the node speaks to the API server; absent without one. */
  readonly access?: AccessFile;
  /** Store of the certificate of that name. */
  readonly store: (name: string) => PairStore;
  /** Approves the request for the kubelet API's certificate; absent where others do. */
  readonly approve?: Approve;
  /** Name of this process: tells its health endpoints from others'. */
  readonly instance: string;
  readonly readiness: Readiness;
  readonly liveness: Liveness;
  readonly report: NodeTelling;
  /** Connections of unknown peers to this process. */
  readonly strangers: Strangers;
  /** Bounds on what the process carries between pods and the cluster. */
  readonly places: TunnelPlaces;
  /** How much this process logs. */
  readonly verbosity: Verbosity;
  readonly metrics: NodeMetrics;
  readonly tracer: Tracer;
  /** Text of a file of the machine that graftlet runs on. @throws the errors of `fs.readFile`. */
  readonly readOwnFile: (path: string) => Promise<string>;
  /** The certificate in PEM by which the API server knows the node. */
  readonly clientCertificate: () => string | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A node's world while it runs. */
export interface NodeContext extends KubeletDeps {
  /** Hands an actor the state and signals that kubelet/wiring.ts names for it. */
  readonly hand: HandOut;
  /** Calls back when the work on a pod is over and its values are freed. */
  readonly onEnd: (hear: (uid: string) => void) => void;
  /** Aborts when the node is to stop. */
  readonly signal: AbortSignal;
}

/** The cluster as a node sees it: its own object, services, and objects that pods refer to. */
export interface Cluster {
  readonly events: EventSink & Service;
  readonly nodes: NodeWatch;
  readonly services: ServiceWatch;
  /** Present where pods reach the cluster over the link, and an account may read them. */
  readonly headless?: { readonly services: ServiceWatch; readonly endpoints: EndpointWatch };
  readonly runtimeClasses: RuntimeClasses & Service;
  readonly objects: ObjectCaches;
  readonly claims: Claims;
  readonly accounts: ServiceAccounts;
  readonly tokens: TokenSource & Service;
  readonly signers: TokenSigners;
  readonly running: readonly Service[];
}

/** The target's cgroups as the node finds them. */
export interface TargetCgroups {
  /** Where pods' cgroups lie. */
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly open: OpenNodeCgroups;
  readonly reserved: ReservedCgroups;
  readonly enforced: Enforcement;
}

/** The target as a node sees it: its pods, logs, devices and health. */
export interface Observed {
  /** Absent where the target is this machine. */
  readonly presence?: Presence;
  /** Present where pods reach the cluster over the link. */
  readonly way?: ClusterWay;
  /** Labels of what this node makes, where others use the runtime too. */
  readonly ownerLabels: Readonly<Record<string, string>>;
  readonly targetClock: TargetClock & Service;
  readonly rights: TargetRights;
  readonly logs: LogReader;
  readonly pleg: Pleg;
  readonly health: RuntimeHealth;
  readonly devices: Devices;
  /** In the order in which they allocate. */
  readonly managers: readonly ResourceManager[];
  readonly drivers: StorageDrivers;
  readonly agent: NodeAgent;
  readonly cgroups: TargetCgroups;
  readonly running: readonly Service[];
}
