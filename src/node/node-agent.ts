import { isIPv4, isIPv6 } from "node:net";
import type { ResourceList } from "../pod/resources.ts";
import type { ApiClient } from "../api/client.ts";
import { type HostFacts, readBootTime, readFacts } from "../host/facts.ts";
import { codeOf, messageOf, throwIfAborted, CodedError } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";
import { createReloading } from "../lib/reloading.ts";
import type { Node } from "../objects.ts";
import type { EventSink, NodeSource } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import { missingControllers } from "../host/cgroups.ts";
import type { Host } from "../seams/host.ts";
import { TargetError } from "../seams/provider.ts";
import { type ReservedInput, nodeAllocatable, nodeCapacity, overReserved } from "./capacity.ts";
import { type Heartbeat, createHeartbeat } from "./heartbeat.ts";
import { createLease } from "./lease.ts";
import { type NodeIdentity, newNode, systemLabels } from "./node-object.ts";
import type { ConfiguredMetadata, ConfiguredMetadataSource } from "./configured-metadata.ts";
import { createReconcile } from "./reconcile.ts";
import { type RegistrationDeps, register, type NodeStartMeasures } from "./registration.ts";
import { type TargetStatusDeps, createTargetStatus } from "./target-status.ts";
import { applyKernelSettings } from "./kernel-settings.ts";
import { checkTargetRequirements, checkCgroupControllers, checkTargetAddress } from "./target-requirements.ts";

export interface NodeSettings extends ReservedInput, NodeIdentity {
  readonly rootDir: string;
  readonly registerNode: boolean;
  /** Addresses of --node-ip. */
  readonly nodeIPs: readonly string[];
  /** A cloud controller initializes the Node, and sets its addresses. */
  readonly cloudProvider: boolean;
  /** Port of the kubelet API. */
  readonly port: number;
  readonly kubeletVersion: string;
  readonly maxPods: number;
  readonly podsPerCore: number;
  /** Local storage of pods is part of the node's capacity. */
  readonly localStorageCapacityIsolation: boolean;
  readonly maxImages: number;
  readonly updateMs: number;
  readonly reportMs: number;
  readonly leaseSeconds: number;
  /** KubeletConfiguration.failSwapOn and failCgroupV1: whether swap and cgroup v1 on the target are refused. */
  readonly failSwapOn: boolean;
  readonly failCgroupV1: boolean;
  /** True refuses kernel settings that differ from a kubelet's, false corrects them, undefined ignores them. */
  readonly protectKernelDefaults: boolean | undefined;
}

export interface NodeAgentDeps extends TargetStatusDeps {
  readonly settings: NodeSettings;
  readonly host: Host;
  readonly client: ApiClient;
  /** Labels, annotations and taints that may change while the node runs; absent if they are fixed by the settings. */
  readonly configured: ConfiguredMetadataSource | undefined;
  /** Client that may write the Node's taints, which a node itself may not; absent if there is none. */
  readonly tainter: ApiClient | undefined;
  /** Addresses of the kubelet API if it is not served at the target's: those of graftlet's own machine or Pod, best first. */
  readonly ownAddresses: readonly string[] | undefined;
  readonly nodes: NodeSource;
  /** True when a name resolves on graftlet's own machine. @throws when no name server answers. */
  readonly resolves: (name: string, signal: AbortSignal) => Promise<boolean>;
  readonly devices: TargetStatusDeps["devices"] & Pick<RegistrationDeps, "startsAnew">;
  /** Asks whether this process is still told to serve the node; absent if no other process may be. */
  readonly isStillOwner: ((signal: AbortSignal) => Promise<boolean>) | undefined;
  /** True if another process has served the node before. */
  readonly isTakenOver: boolean;
  readonly measures: NodeStartMeasures;
  readonly events: EventSink;
  readonly log: Logger;
}

export type NodeAgent = Awaited<ReturnType<typeof createNodeAgent>>;

const cgroupV1Warning =
  "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/** Maintains the Node object, its Lease and its status. Reads the target's facts first: without them there is no node to report.
 *  @throws the target's error if it cannot be read. */
export async function createNodeAgent(deps: NodeAgentDeps, signal: AbortSignal) {
  const { settings, host, measures, clock, log, events } = deps;
  const { nodeName } = settings;
  const configured = deps.configured ?? (settings.configured && unchanging(settings.configured));
  // Heartbeats do not wait for other requests.
  const client = deps.client.limited(undefined);
  const reading = Promise.all([readFacts(host, signal), readBootTime(host, clock, signal)]);
  const [facts, bootedAt] = await readTarget(reading, signal);
  if (bootedAt !== undefined) measures.booted(bootedAt);
  checkTargetRequirements(settings, facts);
  const { protectKernelDefaults } = settings;
  if (protectKernelDefaults !== undefined)
    await applyKernelSettings(host, protectKernelDefaults ? "check" : "set", signal);
  const { cgroupVersion } = facts;
  checkCgroupControllers(cgroupVersion, await readTarget(missingControllers(host, cgroupVersion, signal), signal));
  const nodeIPs = chooseAddresses(settings.nodeIPs, deps.ownAddresses ?? facts.addresses);
  const hostIPs = deps.ownAddresses ? targetAddresses(facts) : nodeIPs;
  const ownName = createOwnName(deps);
  const addresses = () => addressList(deps, nodeIPs, ownName.current());
  const capacity = await readTarget(capacityOf(deps, facts, signal), signal);
  const complaint = overReserved(capacity, settings);
  if (complaint !== undefined) throw new TargetError("NodeAllocatable", "failed_precondition", complaint);
  const allocatable = nodeAllocatable(capacity, settings);
  const target = createTargetStatus(deps, { facts, addresses, capacity, allocatable });
  const registering = { client, identity: settings, startsAnew: deps.devices.startsAnew, measures, clock, log };

  const heartbeat: Heartbeat = createHeartbeat({
    ...deps,
    client,
    nodeName,
    desired: target.desired,
    registerNode: settings.registerNode,
    labels: systemLabels(facts),
    updateMs: settings.updateMs,
    reportMs: settings.reportMs,
    register: (stop) => register(registering, facts, target.bare, stop),
  });
  ownName.onChange(() => heartbeat.triggerUpdate());
  events.event(nodeReference(nodeName), "Normal", "Starting", "Starting kubelet.");
  if (cgroupVersion === 1) events.event(nodeReference(nodeName), "Warning", "CgroupV1", cgroupV1Warning);

  return {
    runnables: [
      ownName,
      heartbeat,
      ...(configured && settings.registerNode
        ? [
            createReconcile({
              ...deps,
              client,
              tainter: deps.tainter ?? client,
              nodeName,
              configured,
              everyMs: settings.updateMs,
            }),
          ]
        : []),
      createLease({ client, nodes: deps.nodes, nodeName, durationSeconds: settings.leaseSeconds, clock, log }),
    ],
    /** Resources that pods may use, as quantities by name. */
    allocatable: (): ResourceList => allocatable,
    hostIPs: () => hostIPs,
    /** Addresses of the kubelet API: the Node's InternalIPs. */
    nodeIPs: (): readonly string[] => nodeIPs,
    triggerUpdate: (): void => heartbeat.triggerUpdate(),
    /** The Node object as it would be registered. */
    ownNode: (): Node => newNode(settings, facts, target.bare()),
    /** Facts of the target at the node's start. */
    facts,
  };
}

function unchanging(configured: ConfiguredMetadata): ConfiguredMetadataSource {
  return { current: () => configured, changed: (signal) => onAbort(signal) };
}

/** Wraps errors of reading the target. @throws TargetError; the signal's reason. */
async function readTarget<T>(reading: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await reading;
  } catch (error) {
    throwIfAborted(signal);
    throw new TargetError("TargetUnreadable", codeOf(error), `the target cannot be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function targetAddresses(facts: HostFacts): readonly string[] {
  checkTargetAddress(facts);
  return chooseAddresses([], facts.addresses);
}

async function capacityOf(
  { settings, host }: NodeAgentDeps,
  facts: HostFacts,
  signal: AbortSignal,
): Promise<ResourceList> {
  const space = settings.localStorageCapacityIsolation
    ? await host.fs.fileSystemInfo(settings.rootDir, signal)
    : undefined;
  return nodeCapacity({
    facts,
    storageBytes: space?.capacityBytes,
    maxPods: settings.maxPods,
    podsPerCore: settings.podsPerCore,
  });
}

/** Interval between lookups of the node's name, milliseconds. */
const nameEveryMs = 300_000;

/** True if the node's name resolves; undefined until the first answer. Not awaited: without a name server the lookup takes long. */
function createOwnName({ settings: { nodeName }, resolves, clock, log }: NodeAgentDeps) {
  return createReloading<boolean | undefined>({
    name: "hostname address",
    initial: undefined,
    read: (signal) => resolves(nodeName, signal),
    same: (one, other) => one === other,
    isMissing: (found) => found !== true,
    intervalMs: nameEveryMs,
    clock,
    log,
  });
}

type AddressSettings = Pick<NodeSettings, "nodeName" | "nodeIPs" | "cloudProvider">;

/** The Node's addresses: InternalIPs, and the node's name if it resolves, since API servers may try a Hostname address first. Until
 *  that is known, the name stays if the Node has it. A cloud controller's addresses have precedence once it has set them; before
 *  that, the Node has only those of --node-ip, if any.
 *  @param ips the InternalIPs. @param resolves whether the name resolves; undefined while unknown. */
export function addressList(
  { settings, nodes }: { readonly settings: AddressSettings; readonly nodes: Pick<NodeSource, "node"> },
  ips: readonly string[],
  resolves: boolean | undefined,
): { type: string; address: string }[] {
  const internal = ips.map((address) => ({ type: "InternalIP", address }));
  const named = { type: "Hostname", address: settings.nodeName };
  const shown = nodes.node()?.status?.addresses ?? [];
  if (settings.cloudProvider && shown.length > 0) return shown.map((each) => ({ ...each }));
  if (settings.cloudProvider && settings.nodeIPs.length === 0) return [named];
  const known = resolves ?? shown.some(({ type, address }) => type === named.type && address === named.address);
  return known ? [...internal, named] : internal;
}

/** A node's addresses, primary first, at most one per family.
 *  @param wanted addresses of --node-ip: none, addresses, or 0.0.0.0 or :: to prefer a family.
 *  @param found the target's own, best first.
 *  @throws failed_precondition when there is none. */
export function chooseAddresses(wanted: readonly string[], found: readonly string[]): readonly string[] {
  const preferSix = wanted[0] !== undefined && /^[0:]+$/.test(wanted[0]) && isIPv6(wanted[0]);
  if (wanted.length > 0 && !preferSix && wanted[0] !== "0.0.0.0") return wanted;
  const four = found.find((address) => isIPv4(address));
  const six = found.find((address) => isIPv6(address));
  const first = preferSix ? (six ?? four) : (four ?? six);
  if (first === undefined)
    throw new CodedError("failed_precondition", "the target has only loopback addresses: set --node-ip");
  return [first];
}
