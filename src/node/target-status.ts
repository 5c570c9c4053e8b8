import type { HostFacts } from "../host/facts.ts";
import { readUsage } from "../host/usage.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { NodeStatus } from "../objects.ts";
import type { Pressure } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink, TargetNetwork } from "../seams/provider.ts";
import type { Images } from "../seams/runtime.ts";
import type { ReservedInput, ResourceList } from "./capacity.ts";
import { nodeVerdicts, outOfReach, readyVerdict, shuttingDown, type Verdict } from "./conditions.ts";
import type { WantedStatus } from "./heartbeat.ts";
import { nodeImages, nodeStatus } from "./node-object.ts";
import { createLinger, pressureOf, type Readings } from "./pressure.ts";
import { reachableType } from "./reachability.ts";
import type { RuntimeHealth } from "./runtime-health.ts";
import { targetConditions } from "./target-conditions.ts";
import type { TargetRights } from "./target-rights.ts";

export interface TargetStatusDeps {
  readonly settings: Pick<ReservedInput, "evictionHard"> & {
    readonly rootDir: string;
    readonly port: number;
    readonly kubeletVersion: string;
    /** KubeletConfiguration.nodeStatusMaxImages; -1 for all. */
    readonly maxImages: number;
    readonly pressureTransitionMs: number;
  };
  readonly host: Host;
  readonly images: Pick<Images, "listImages" | "imageFsInfo">;
  readonly runtime: RuntimeHealth;
  /** Other reasons for the node not to be ready, such as PLEG's. */
  readonly problems: () => readonly string[];
  /** True once the target is about to shut down. */
  readonly goingDown: () => true | undefined;
  /** The link to a target on another machine. */
  readonly link?: TargetLink;
  /** The network of the target's pods, when it may not be the cluster's. */
  readonly network?: TargetNetwork;
  /** Verdict on the API server's connection to the kubelet API, when it is checked. */
  readonly reachable?: () => Verdict | undefined;
  readonly rights: Pick<TargetRights, "read">;
  /** Resources that plugins on the target offer. */
  readonly devices: { amounts(): { readonly capacity: ResourceList; readonly allocatable: ResourceList } };
  readonly clock: Clock;
}

/** Facts that do not change while the target is up, and the node's present addresses. */
export interface TargetConstants {
  readonly facts: HostFacts;
  readonly addresses: () => readonly { readonly type: string; readonly address: string }[];
  readonly capacity: ResourceList;
  readonly allocatable: ResourceList;
}

export interface TargetStatus {
  /** The status without images and conditions, as a node registers with it. */
  bare(): NodeStatus;
  /** Reads the target and returns the wanted status. A target that cannot be read makes the node unready. */
  wanted(signal: AbortSignal): Promise<WantedStatus>;
  /** Resources under pressure when the target was last read; undefined before. */
  pressure(): Pressure | undefined;
}

/** Shortest interval between readings of the list of images. */
const imagesEveryMs = 30_000;
/** Longest wait for the runtime, milliseconds: a runtime that hangs must not delay the status that reports it. */
const patienceMs = 2_000;

/** The node's status as the target shows it. */
export function createTargetStatus(deps: TargetStatusDeps, constants: TargetConstants): TargetStatus {
  const { settings, runtime, clock } = deps;
  const linger = createLinger(settings.pressureTransitionMs);
  const images = createImageList(deps);
  const imageDirectory = createImageDirectory(deps);
  let known: Pressure | undefined;
  const pressure = async (signal: AbortSignal): Promise<Pressure | string> => {
    try {
      const readings = await takeReadings(deps, constants.facts, await imageDirectory(signal), signal);
      known = linger(pressureOf(readings, settings.evictionHard), clock.monotonic());
      return known;
    } catch (error) {
      return `target cannot be read: ${messageOf(error)}`;
    }
  };
  const status = (list: NodeStatus["images"]): NodeStatus => {
    const version = runtime.version();
    const handlers = runtime
      .handlers()
      .map(({ name, features }) => ({ name, ...(features && { features: { ...features } }) }));
    const runtimeVersion = version ? `${version.runtimeName}://${version.runtimeVersion}` : "";
    const { port, kubeletVersion } = settings;
    const devices = deps.devices.amounts();
    const capacity = { ...constants.capacity, ...devices.capacity };
    const allocatable = { ...constants.allocatable, ...devices.allocatable };
    return {
      ...nodeStatus({
        facts: constants.facts,
        addresses: constants.addresses(),
        capacity,
        allocatable,
        port,
        kubeletVersion,
        runtimeVersion,
        images: list,
      }),
      ...(handlers.length > 0 && { runtimeHandlers: handlers }),
      ...(runtime.supplementalGroupsPolicy() && { features: { supplementalGroupsPolicy: true } }),
    };
  };
  return {
    bare: () => status([]),
    pressure: () => known,
    async wanted(signal) {
      const trouble = deps.link?.trouble();
      // Its shutdown is the reason that a target is not there.
      if (trouble && deps.goingDown())
        return { status: status(images.known()), verdicts: [readyVerdict([shuttingDown])] };
      if (trouble) return { status: status(images.known()), verdicts: outOfReach(trouble) };
      // Concurrent: each may wait for a slow runtime.
      const [read, list, rights] = await Promise.all([
        pressure(signal),
        images.read(signal),
        deps.rights.read(clock.within(patienceMs, signal)),
      ]);
      const problems = [...runtime.problems(), ...deps.problems(), ...(deps.goingDown() ? [shuttingDown] : [])];
      const verdicts =
        typeof read === "string" ? nodeVerdicts(undefined, [...problems, read]) : nodeVerdicts(read, problems);
      const own = targetConditions({ network: deps.network, rights });
      const way = deps.reachable?.();
      const absent = deps.reachable ? own.absent : [...own.absent, reachableType];
      return { status: status(list), verdicts: [...own.verdicts, ...(way ? [way] : []), ...verdicts], absent };
    },
  };
}

type ImageList = NonNullable<NodeStatus["images"]>;

/** The images, read at intervals; the last list when the runtime does not answer. */
function createImageList({ settings, images, runtime, clock }: TargetStatusDeps): {
  known(): ImageList;
  read(signal: AbortSignal): Promise<ImageList>;
} {
  let known: { readonly at: number; readonly list: ImageList } | undefined;
  const read = async (signal: AbortSignal): Promise<ImageList> => {
    if (known && clock.monotonic() - known.at < imagesEveryMs) return known.list;
    if (runtime.version() === undefined) return [];
    const list = await images.listImages(clock.within(patienceMs, signal)).then(
      (all) => nodeImages(all, settings.maxImages),
      () => known?.list ?? [],
    );
    known = { at: clock.monotonic(), list };
    return list;
  };
  return { known: () => known?.list ?? [], read };
}

async function takeReadings(
  { settings, host }: TargetStatusDeps,
  facts: HostFacts,
  imagePath: string | undefined,
  signal: AbortSignal,
): Promise<Readings> {
  const [usage, nodeFs, imageFs] = await Promise.all([
    readUsage(host, signal),
    host.fs.freeSpace(settings.rootDir, signal),
    imagePath === undefined ? undefined : host.fs.freeSpace(imagePath, signal).catch(() => undefined),
  ]);
  return { ...usage, maxPid: facts.maxPid, nodeFs, imageFs };
}

/** Path of the runtime's images on the target; read once per known runtime version. */
function createImageDirectory({ images, runtime, clock }: TargetStatusDeps) {
  let known: { readonly of: unknown; readonly directory: string | undefined } | undefined;
  return async (signal: AbortSignal): Promise<string | undefined> => {
    const version = runtime.version();
    if (version === undefined || known?.of === version) return known?.directory;
    const info = await images.imageFsInfo(clock.within(patienceMs, signal)).catch(() => undefined);
    if (!info) return known?.directory;
    known = { of: version, directory: info.imageFilesystems[0]?.fsId?.mountpoint || undefined };
    return known.directory;
  };
}
