import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { ApiClient } from "../api/client.ts";
import { type HostFacts, readFacts } from "../host/facts.ts";
import { readUsage } from "../host/usage.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { NodeStatus } from "../objects.ts";
import type { EventSink, HostAddresses, NodeSource } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import type { Host } from "../seams/host.ts";
import type { Images } from "../seams/runtime.ts";
import { chooseAddresses } from "./addresses.ts";
import { type ReservedInput, type ResourceList, nodeAllocatable, nodeCapacity } from "./capacity.ts";
import { nodeVerdicts } from "./conditions.ts";
import { type Heartbeat, type WantedStatus, createHeartbeat } from "./heartbeat.ts";
import { createLease } from "./lease.ts";
import { type NodeIdentity, nodeImages, nodeStatus } from "./node-object.ts";
import { type Pressure, type Readings, createLinger, pressureOf } from "./pressure.ts";
import { register } from "./registration.ts";
import type { RuntimeHealth } from "./runtime-health.ts";

export interface NodeSettings extends ReservedInput, NodeIdentity {
  readonly rootDir: string;
  readonly registerNode: boolean;
  /** Addresses of --node-ip. */
  readonly nodeIPs: readonly string[];
  /** Port of the kubelet API. */
  readonly port: number;
  readonly kubeletVersion: string;
  readonly maxPods: number;
  readonly podsPerCore: number;
  readonly maxImages: number;
  readonly updateMs: number;
  readonly reportMs: number;
  readonly leaseSeconds: number;
  readonly pressureTransitionMs: number;
  /** KubeletConfiguration.failSwapOn and failCgroupV1: what the target must not have. */
  readonly failSwapOn: boolean;
  readonly failCgroupV1: boolean;
}

export interface NodeAgentDeps {
  readonly settings: NodeSettings;
  readonly client: ApiClient;
  readonly nodes: NodeSource;
  readonly host: Host;
  readonly images: Pick<Images, "listImages" | "imageFsInfo">;
  readonly runtime: RuntimeHealth;
  /** Other reasons for the node not to be ready, such as PLEG's. */
  readonly problems: () => readonly string[];
  readonly events: EventSink;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface NodeAgent extends HostAddresses {
  readonly services: readonly Service[];
  /** Resources that pods may use, as quantities by name. */
  allocatable(): ResourceList;
  hurry(): void;
}

/** The list of images is read this often at most. */
const imagesEveryMs = 30_000;
const cgroupV1Warning =
  "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/** The Node object, its Lease and its status. Reads the target's facts first: until they are known there is no node to speak of.
 *  @throws what the target says when it cannot be read. */
export async function createNodeAgent(deps: NodeAgentDeps, signal: AbortSignal): Promise<NodeAgent> {
  const { settings, host, runtime, clock, log, events } = deps;
  const { nodeName } = settings;
  const facts = await readFacts(host, signal);
  refuseUnfit(settings, facts);
  const ips = chooseAddresses(settings.nodeIPs, facts.addresses);
  const addresses = await addressList(nodeName, ips);
  const linger = createLinger(settings.pressureTransitionMs);
  const capacity = await capacityOf(deps, facts, signal);
  const allocatable = nodeAllocatable(capacity, settings);
  let images: { readonly at: number; readonly list: NonNullable<NodeStatus["images"]> } | undefined;

  const currentImages = async (stop: AbortSignal) => {
    if (images && clock.monotonic() - images.at < imagesEveryMs) return images.list;
    if (runtime.version() === undefined) return [];
    const list = await deps.images.listImages(stop).then((all) => nodeImages(all, settings.maxImages), () => images?.list ?? []);
    images = { at: clock.monotonic(), list };
    return list;
  };

  const pressure = async (stop: AbortSignal): Promise<{ readonly pressure?: Pressure; readonly problems: readonly string[] }> => {
    try {
      return { pressure: linger(pressureOf(await takeReadings(deps, facts, stop), settings.evictionHard), clock.monotonic()), problems: [] };
    } catch (error) {
      return { problems: [`target cannot be read: ${messageOf(error)}`] };
    }
  };

  const status = (list: NodeStatus["images"]): NodeStatus => {
    const version = runtime.version();
    const handlers = runtime.handlers().map(({ name, features }) => ({ name, ...(features && { features: { ...features } }) }));
    return {
      ...nodeStatus({
        facts,
        addresses,
        capacity,
        allocatable,
        port: settings.port,
        runtimeVersion: version ? `${version.runtimeName}://${version.runtimeVersion}` : "",
        kubeletVersion: settings.kubeletVersion,
        images: list,
      }),
      ...(handlers.length > 0 && { runtimeHandlers: handlers }),
      ...(runtime.supplementalGroupsPolicy() && { features: { supplementalGroupsPolicy: true } }),
    };
  };

  const wanted = async (stop: AbortSignal): Promise<WantedStatus> => {
    const read = await pressure(stop);
    const problems = [...runtime.problems(), ...deps.problems(), ...read.problems];
    return { status: status(await currentImages(stop)), verdicts: nodeVerdicts(read.pressure, problems) };
  };

  const heartbeat: Heartbeat = createHeartbeat({
    ...deps,
    nodeName,
    wanted,
    registerNode: settings.registerNode,
    updateMs: settings.updateMs,
    reportMs: settings.reportMs,
    register: (stop) => register({ client: deps.client, identity: settings, clock, log }, facts, () => status([]), stop),
  });
  events.event(nodeReference(nodeName), "Normal", "Starting", "Starting kubelet.");
  if (facts.cgroupVersion === 1) events.event(nodeReference(nodeName), "Warning", "CgroupV1", cgroupV1Warning);

  return {
    services: [heartbeat, createLease({ client: deps.client, nodes: deps.nodes, nodeName, durationSeconds: settings.leaseSeconds, clock, log })],
    allocatable: () => allocatable,
    hostIPs: () => ips,
    hurry: () => heartbeat.hurry(),
  };
}

/** @throws failed_precondition, one sentence, for a target that the configuration does not want. */
function refuseUnfit({ failSwapOn, failCgroupV1 }: NodeSettings, { swapBytes, cgroupVersion }: HostFacts): void {
  if (failSwapOn && swapBytes > 0) {
    throw new CodedError("failed_precondition", "failSwapOn is true and the target has swap on: turn swap off, or set failSwapOn to false");
  }
  if (failCgroupV1 && cgroupVersion === 1) {
    throw new CodedError("failed_precondition", "failCgroupV1 is true and the target has cgroup v1: move it to cgroup v2, or set failCgroupV1 to false");
  }
}

async function capacityOf({ settings, host }: NodeAgentDeps, facts: HostFacts, signal: AbortSignal): Promise<ResourceList> {
  const { capacityBytes } = await host.fs.freeSpace(settings.rootDir, signal);
  return nodeCapacity({ facts, storageBytes: capacityBytes, maxPods: settings.maxPods, podsPerCore: settings.podsPerCore });
}

async function takeReadings({ settings, host, images, runtime }: NodeAgentDeps, facts: HostFacts, signal: AbortSignal): Promise<Readings> {
  const imagePath = runtime.version() === undefined ? undefined : await imageDirectory(images, signal);
  const [usage, nodeFs, imageFs] = await Promise.all([
    readUsage(host, signal),
    host.fs.freeSpace(settings.rootDir, signal),
    imagePath === undefined ? undefined : host.fs.freeSpace(imagePath, signal).catch(() => undefined),
  ]);
  return { ...usage, maxPid: facts.maxPid, nodeFs, imageFs };
}

/** Where the runtime keeps its images on the target. */
async function imageDirectory(images: Pick<Images, "imageFsInfo">, signal: AbortSignal): Promise<string | undefined> {
  const info = await images.imageFsInfo(signal).catch(() => undefined);
  return info?.imageFilesystems[0]?.fsId?.mountpoint || undefined;
}

/** InternalIPs, and the node's name where it resolves: API servers may try a Hostname address first. */
async function addressList(nodeName: string, ips: readonly string[]): Promise<{ type: string; address: string }[]> {
  const internal = ips.map((address) => ({ type: "InternalIP", address }));
  const resolves = isIP(nodeName) !== 0 || (await lookup(nodeName).then(() => true, () => false));
  return resolves ? [...internal, { type: "Hostname", address: nodeName }] : internal;
}
