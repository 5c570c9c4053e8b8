import type { RuntimeHandler } from "../gen/cri.ts";
import type { HostFacts } from "../host/facts.ts";
import type { Clock } from "../lib/clock.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { NodeStatus } from "../objects.ts";
import type { NodePressure } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import type { LinkTrouble, TargetLink } from "../seams/provider.ts";
import type { Images } from "../seams/runtime.ts";
import type { ValueReader } from "../state/values.ts";
import type { PlaceholderCount } from "../pod/placeholder-counts.ts";
import type { ResourceList } from "../pod/resources.ts";
import {
  kubeletConditions,
  unreachableConditions,
  readyCondition,
  shuttingDown,
  type NodeConditionState,
} from "./conditions.ts";
import { nodeImages, nodeStatus } from "./node-object.ts";
import { reachableType } from "./reachability.ts";
import type { RuntimeHealth } from "./runtime-health.ts";
import { type Isolation, targetConditions } from "./target-conditions.ts";
import type { TargetRights } from "./target-rights.ts";

export interface TargetStatusDeps {
  readonly settings: {
    readonly port: number;
    readonly kubeletVersion: string;
    /** KubeletConfiguration.nodeStatusMaxImages; -1 for all. */
    readonly maxImages: number;
  };
  readonly host: Pick<Host, "budget">;
  readonly images: Pick<Images, "listImages">;
  /** Resource pressure on the target. */
  readonly pressure: ValueReader<NodePressure>;
  readonly runtime: RuntimeHealth;
  /** Other reasons for the node not to be ready, for example of storage drivers. */
  readonly problems: () => readonly string[];
  /** Findings of the agent's own health checks, such as PLEG's. */
  readonly unhealthy: () => readonly string[];
  /** True once the target is shutting down. */
  readonly goingDown: () => true | undefined;
  /** Attached volumes in use; undefined while unknown: the Node then keeps its list. */
  readonly volumesInUse: () => readonly string[] | undefined;
  /** The link to a target on another machine. */
  readonly link: TargetLink | undefined;
  /** Why the target's pods cannot reach the cluster; absent if they always can. */
  readonly isolation: (() => Isolation | undefined) | undefined;
  /** Result of the API server's connection to the kubelet API, if it is checked. */
  readonly reachable: (() => NodeConditionState | undefined) | undefined;
  readonly rights: Pick<TargetRights, "read">;
  /** Pods of DaemonSets that do not run here, but are shown as Ready. */
  readonly placeholders: () => readonly PlaceholderCount[];
  /** Resources offered by device plugins on the target. */
  readonly devices: { amounts(): { readonly capacity: ResourceList; readonly allocatable: ResourceList } };
  readonly clock: Clock;
}

/** Facts that do not change while the target is up, and the node's current addresses. */
export interface TargetConstants {
  readonly facts: HostFacts;
  readonly addresses: () => readonly { readonly type: string; readonly address: string }[];
  readonly capacity: ResourceList;
  readonly allocatable: ResourceList;
}

/** Minimum interval between reads of the image list. */
const imagesIntervalMs = 30_000;
/** Timeout of calls to the runtime, milliseconds: a hanging runtime must not delay the status that reports it. */
const runtimeTimeoutMs = 2_000;

/** Builds the node's status from the target. */
export function createTargetStatus(deps: TargetStatusDeps, constants: TargetConstants) {
  const { settings, runtime, clock } = deps;
  const images = createImageList(deps);
  const isSilent = createSilence(deps);
  const status = (list: NodeStatus["images"]): NodeStatus => {
    const version = runtime.version();
    const handlers = runtime.handlers()?.map(runtimeHandlerStatus);
    const features = runtime.features();
    const shown = isSilent() ? unknownVersion : formatRuntimeVersion(version?.runtimeVersion ?? "");
    const runtimeVersion = version ? `${version.runtimeName}://${shown}` : "";
    const { port, kubeletVersion } = settings;
    const devices = deps.devices.amounts();
    const inUse = deps.volumesInUse();
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
      ...(inUse && { volumesInUse: [...inUse] }),
      ...(handlers && { runtimeHandlers: handlers }),
      ...(features && { features: { supplementalGroupsPolicy: features.supplementalGroupsPolicy } }),
    };
  };
  return {
    /** The status without images and conditions, for registration. */
    bare: () => status([]),
    /** Reads the target and returns the desired status. If the target cannot be read, the node is not ready. */
    async desired(signal: AbortSignal) {
      const trouble = deps.link?.trouble() ?? limitTrouble(deps.host);
      // The target's shutdown is the reason that it is unreachable.
      if (trouble && deps.goingDown())
        return { status: status(images.known()), verdicts: [readyCondition([shuttingDown])] };
      if (trouble) return { status: status(images.known()), verdicts: unreachableConditions(trouble) };
      // Concurrent: each may wait for a slow runtime.
      const [list, rights] = await Promise.all([
        images.read(signal),
        deps.rights.read(clock.within(runtimeTimeoutMs, signal)),
        untilAborted(deps.pressure.written, clock.within(runtimeTimeoutMs, signal)).catch(() => undefined),
      ]);
      const found = [...runtime.problems(deps.unhealthy()), ...deps.problems()];
      const problems = [...found, ...(deps.goingDown() ? [shuttingDown] : [])];
      const { pressure, problem } = deps.pressure.get() ?? {};
      const verdicts =
        problem === undefined
          ? kubeletConditions(pressure, problems)
          : kubeletConditions(undefined, [...problems, `target cannot be read: ${problem}`]);
      const own = targetConditions({
        isolation: deps.isolation?.(),
        rights,
        placeholders: deps.placeholders(),
      });
      const way = deps.reachable?.();
      const absent = deps.reachable ? own.absent : [...own.absent, reachableType];
      const all = [...own.verdicts, ...(way ? [way] : []), ...verdicts];
      return { status: status(list), verdicts: all, absent, certain: deps.goingDown() === true };
    },
  };
}

/** Failure of a target that is reachable but over its memory budget. */
function limitTrouble({ budget }: Pick<Host, "budget">): LinkTrouble | undefined {
  const message = budget?.exceeded();
  return message === undefined ? undefined : { reason: "LimitExceeded", message };
}

/** True while the runtime does not respond although the link to its machine works; like a kubelet, the node then reports the
 *  runtime's version as Unknown. */
function createSilence({ runtime, link }: TargetStatusDeps): () => boolean {
  let losses = link?.losses();
  return () => {
    if (!runtime.isAnswering()) return link?.losses() === losses;
    losses = link?.losses();
    return false;
  };
}

/** Adds both features to a handler; missing ones are false. */
function runtimeHandlerStatus({ name, features }: RuntimeHandler) {
  const { recursiveReadOnlyMounts = false, userNamespaces = false } = features ?? {};
  return { name, features: { recursiveReadOnlyMounts, userNamespaces } };
}

type ImageList = NonNullable<NodeStatus["images"]>;

/** The image list, read at intervals; the last one if the runtime does not respond. */
function createImageList({ settings, images, runtime, clock }: TargetStatusDeps): {
  known(): ImageList;
  read(signal: AbortSignal): Promise<ImageList>;
} {
  let known: { readonly at: number; readonly list: ImageList } | undefined;
  const read = async (signal: AbortSignal): Promise<ImageList> => {
    if (known && clock.monotonic() - known.at < imagesIntervalMs) return known.list;
    if (runtime.version() === undefined) return [];
    const list = await images.listImages(clock.within(runtimeTimeoutMs, signal)).then(
      (all) => nodeImages(all, settings.maxImages),
      () => known?.list ?? [],
    );
    known = { at: clock.monotonic(), list };
    return list;
  };
  return { known: () => known?.list ?? [], read };
}

/** Version of a runtime that reports none, or an invalid one. */
const unknownVersion = "Unknown";

/** Formats a runtime's version as the kubelet does: `v2.1.4` becomes 2.1.4; if it is not a semantic version, such as 1.6.20~ds1, only the
 *  numbers remain. (kubelet, newRuntimeVersion)
 *  @see https://semver.org/#backusnaur-form-grammar-for-valid-semver-versions */
export function formatRuntimeVersion(reported: string): string {
  const [, numbers, extra = ""] = /^\s*v?(\d+(?:\.\d+)*)(.*)$/.exec(reported) ?? [];
  if (numbers === undefined) return unknownVersion;
  const parts = numbers.split(".");
  const suffix = parts.length === 3 && !parts.some(hasLeadingZero) ? semanticSuffix(extra) : undefined;
  if (suffix !== undefined) return `${numbers}${suffix}`;
  const [first = ""] = parts;
  if (parts.length < 2 || hasLeadingZero(first)) return unknownVersion;
  return parts.map(BigInt).join(".");
}

/** Pre-release and build metadata; undefined for anything else. */
function semanticSuffix(extra: string): string | undefined {
  const name = "[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*";
  const [, suffix, preRelease = ""] = new RegExp(`^((?:-(${name}))?(?:\\+${name})?)\\s*$`).exec(extra) ?? [];
  if (preRelease.split(".").some((part) => /^\d+$/.test(part) && hasLeadingZero(part))) return undefined;
  return suffix;
}

function hasLeadingZero(digits: string): boolean {
  return digits.startsWith("0") && digits !== "0";
}
