import type { PodIds, RuntimeClasses } from "../runtime/ports.ts";
import type { ApiClient } from "../api/client.ts";
import type { AccessFile } from "../api/kubeconfig.ts";
import type { EndpointWatch, NodeWatch, ServiceWatch } from "../api/listers.ts";
import type { ObjectCaches, ServiceAccounts } from "../api/objects.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import type { TokenSource } from "../api/tokens.ts";
import type { TrustBundles } from "../api/trust-bundles.ts";
import type { PodCertificates } from "../certificates/pod-certificates.ts";
import type { Approve } from "../certificates/approver.ts";
import type { PairStore } from "../certificates/pair-store.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { CpuManager } from "../cpus/manager.ts";
import type { MemoryManager } from "../memory-manager/manager.ts";
import type { DeviceManager } from "../devices/manager.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { Fence } from "../seams/fenced.ts";
import type { FencingToken } from "../host/lock.ts";
import type { RootClaimant } from "../host/root-owner.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Tracer } from "../lib/tracer.ts";
import type { NodeMetrics } from "../metrics/node-metrics.ts";
import type { SharedReads } from "../api/shared-reads.ts";
import type { SharedWatches } from "../api/shared-watches.ts";
import type { TunnelLimits } from "../service-tunnel/tunnel-limits.ts";
import type { ServiceTunnel } from "../service-tunnel/service-tunnel.ts";
import type { NodeAgent } from "../node/node-agent.ts";
import type { ConfiguredMetadataSource } from "../node/configured-metadata.ts";
import type { Liveness } from "../node/liveness.ts";
import type { Readiness } from "../node/readiness.ts";
import type { NodeReporter } from "../report/reported-node.ts";
import type { RuntimeHealth } from "../node/runtime-health.ts";
import type { TargetRights } from "../node/target-rights.ts";
import type { EventSink, LogReader, WaitForTarget, CsiDrivers } from "../pipeline.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { OpenNodeCgroups } from "../cgroups/node-cgroups.ts";
import type { Enforcement, ReservedCgroups } from "../cgroups/reserved-cgroups.ts";
import type { Pleg } from "../pleg/pleg.ts";
import type { Target } from "../seams/provider.ts";
import type { PrivateColumn } from "../state/records.ts";
import type { TopologyManager } from "../topology/manager.ts";
import type { Claims } from "../volumes/ports.ts";
import type { PartsOf } from "./wiring.ts";
import type { NodeServerDeps } from "../server/server.ts";

/** The locks that reserve the target for this node. */
export interface TargetClaim extends Fence {
  /** Acquires the locks again if they were lost; otherwise verifies them.
   *  @throws TargetError RuntimeInUse if another agent has acquired them meanwhile. */
  renew(signal: AbortSignal): Promise<void>;
  /** True while the locks are lost. */
  isLost(): boolean;
  /** Calls back when the locks are lost. @returns unsubscribes. */
  onLost(listener: () => void): () => void;
}

/** Parts that all nodes of a process share. */
export interface ProcessParts
  extends Pick<NodeServerDeps, "kubeletApi" | "unauthenticated" | "flags" | "verbosity" | "profiles"> {
  /** ID of this process, to recognize its own health endpoints. */
  readonly instance: string;
  readonly readiness: Readiness;
  readonly liveness: Liveness;
  /** Limits of service tunnel connections of this process. */
  readonly tunnelLimits: TunnelLimits;
  readonly watches: SharedWatches;
  readonly reads: SharedReads;
}

/** Dependencies of a node. */
export interface KubeletDeps extends ProcessParts, ClockAndLog {
  readonly config: NodeConfig;
  readonly target: Target;
  readonly claim: TargetClaim;
  readonly client: ApiClient;
  /** Standalone: there is no API server; pods come from files and URLs, and events go to the log. */
  readonly standalone: boolean;
  /** Labels, annotations and taints of the Node that may change while it runs; absent: the configured ones stay. */
  readonly configuredMetadata?: ConfiguredMetadataSource;
  /** Returns the ID of the only machine on which the node may run; absent, or undefined, if any machine will do. */
  readonly expectedMachine?: () => string | undefined;
  /** Identifies this process among the replicas that are told to serve the node, one after the other; absent without replicas. */
  readonly fencingToken?: FencingToken | undefined;
  /** Asks the API server whether this process is still told to serve the node; absent without replicas. @throws the client's errors. */
  readonly isStillOwner?: ((signal: AbortSignal) => Promise<boolean>) | undefined;
  /** The object for which the node runs; absent without one. */
  readonly claimant?: RootClaimant | undefined;
  /** The service account of graftlet's Pod, if it has one. */
  readonly account?: { readonly client: ApiClient };
  /** The node's credentials for the API server; undefined without one. */
  readonly access?: AccessFile;
  readonly store: (name: string) => PairStore;
  /** Approves the signing request for the kubelet API's certificate; undefined if others approve it. */
  readonly approve?: Approve;
  /** Receives the node's state. */
  readonly report: NodeReporter;
  readonly metrics: NodeMetrics;
  readonly tracer: Tracer;
  /** Reads a text file on graftlet's own machine. @throws the errors of `fs.readFile`. */
  readonly readOwnFile: (path: string) => Promise<string>;
  /** The node's client certificate for the API server, in PEM. */
  readonly clientCertificate: () => string | undefined;
}

/** Dependencies of a running node. */
export interface NodeContext extends KubeletDeps {
  /** Returns the state and signals that kubelet/wiring.ts names for an actor, with the clock and the log. */
  readonly partsOf: PartsOf;
  /** Creates per-pod state that is private to one actor. */
  readonly privateColumn: PrivateColumn;
  /** Calls back when the work on a pod has ended and its values are freed. */
  readonly onEnd: (hear: (uid: string) => void) => void;
  /** Aborts when the node should stop. */
  readonly signal: AbortSignal;
}

/** The node's view of the cluster: its own object, Services, and objects that pods refer to. */
export interface Cluster {
  readonly events: EventSink & Runnable;
  readonly nodes: NodeWatch;
  readonly services: ServiceWatch;
  /** Undefined unless pods reach the cluster through the service tunnel, and a service account may read headless Services. */
  readonly headless: { readonly services: ServiceWatch; readonly endpoints: EndpointWatch } | undefined;
  readonly runtimeClasses: RuntimeClasses & Runnable;
  readonly objects: ObjectCaches;
  readonly claims: Claims;
  readonly accounts: ServiceAccounts;
  readonly tokens: TokenSource & Runnable;
  readonly signers: TokenSigners;
  readonly trustBundles: TrustBundles;
  readonly podCertificates: PodCertificates;
  readonly running: readonly Runnable[];
}

export interface TargetCgroups {
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly open: OpenNodeCgroups;
  readonly reserved: ReservedCgroups;
  readonly enforced: Enforcement;
}

/** The node's view of the target: its pods, logs, devices and health. */
export interface ObservedTarget {
  /** Undefined if the target is the local machine. */
  readonly waitForTarget: WaitForTarget | undefined;
  /** Undefined unless pods reach the cluster through a service tunnel. */
  readonly serviceTunnel: ServiceTunnel | undefined;
  /** Labels of this node's objects in a shared runtime. */
  readonly ownerLabels: Readonly<Record<string, string>>;
  readonly targetClock: TargetClock & Runnable;
  readonly rights: TargetRights;
  readonly logs: LogReader;
  readonly pleg: Pleg;
  readonly health: RuntimeHealth;
  readonly devices: DeviceManager;
  /** Undefined unless containers can get exclusive CPUs. */
  readonly cpus: CpuManager | undefined;
  readonly podIds: PodIds;
  /** Undefined unless containers get memory from particular NUMA nodes. */
  readonly memory: MemoryManager | undefined;
  /** Resource managers, in the order in which they allocate. */
  readonly managers: readonly ResourceManager[];
  /** Lets the managers allocate resources to pods, and aligns the allocations. */
  readonly topology: TopologyManager;
  readonly drivers: CsiDrivers;
  readonly agent: NodeAgent;
  readonly cgroups: TargetCgroups;
  readonly running: readonly Runnable[];
}
