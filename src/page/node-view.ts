import { isProblem } from "../api/node-conditions.ts";
import type { Node, NodeCondition, NodeStatus, ContainerStatus, Pod } from "../objects.ts";
import { quantityValue } from "../pod/quantity.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { ConditionView, NodeView, PodView, Measure, PodMeasure, Space, UsageView } from "./messages.ts";

export interface NodeViewSource {
  readonly name: string;
  readonly provider: string;
  /** Undefined while the Node is unknown. */
  readonly node: Node | undefined;
  /** True while the node runs on its target. */
  readonly running: boolean;
  /** The link's failure; `local` if the target is this machine. */
  readonly link: LinkTrouble | "up" | "local" | "unknown";
}

/** Builds the page's view of a Node. Pure. */
export function nodeView({ name, provider, node, running, link }: NodeViewSource): NodeView {
  const { conditions = [], images = [] } = node?.status ?? {};
  const ready = conditions.find(({ type }) => type === "Ready");
  const isReady = ready?.status === "True";
  const [way, trouble] = typeof link === "string" ? [link, undefined] : [link.reason, link.message];
  return {
    name,
    provider,
    state:
      isReady && running && trouble === undefined
        ? "Ready"
        : running || ready?.status === "False"
          ? "NotReady"
          : "Starting",
    why: trouble ?? (isReady ? undefined : ready?.message) ?? "",
    link: way,
    conditions: conditions.map(conditionView),
    images: images.length,
    imageBytes: images.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0),
    ...machineView(node?.status),
  };
}

function machineView(
  status: NodeStatus | undefined,
): Pick<NodeView, "version" | "os" | "address" | "cpus" | "memory" | "maxPods"> {
  const { kubeletVersion: version = "", osImage: os = "" } = status?.nodeInfo ?? {};
  const size = (resource: string) => quantityValue(status?.capacity?.[resource] ?? "0");
  return {
    version,
    os,
    address: status?.addresses?.find(({ type }) => type === "InternalIP")?.address ?? "",
    cpus: size("cpu"),
    memory: size("memory"),
    maxPods: size("pods"),
  };
}

/** Condition reason that reflects a setting and not a problem. */
const configuredReason = "TargetNetworkOnly";

function conditionView({ type, status, reason = "", message = "" }: NodeCondition): ConditionView {
  const bad = isProblem({ type, status }) && reason !== configuredReason;
  return { type, status, reason, message, bad };
}

/** Builds the page's view of a pod. Pure. */
export function podView(pod: Pod): PodView {
  const { metadata, spec, status } = pod;
  const containers = status?.containerStatuses ?? [];
  const all = [...(status?.initContainerStatuses ?? []), ...containers];
  const shown = podStatusText(pod, containers);
  const since = status?.startTime ?? metadata.creationTimestamp;
  return {
    uid: metadata.uid,
    namespace: metadata.namespace,
    name: metadata.name,
    status: shown,
    bad: !normalStatuses.has(shown),
    ready: containers.filter(({ ready }) => ready).length,
    of: spec.containers.length,
    restarts: all.reduce((sum, { restartCount }) => sum + restartCount, 0),
    since: since === undefined ? 0 : Date.parse(since),
  };
}

/** Statuses that need no attention. */
const normalStatuses: ReadonlySet<string> = new Set([
  "Running",
  "Succeeded",
  "Completed",
  "Pending",
  "ContainerCreating",
  "PodInitializing",
  "Terminating",
]);

/** Status text of a pod, as in kubectl's STATUS column, but without the progress of init containers.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/ */
function podStatusText({ metadata, status }: Pod, containers: readonly ContainerStatus[]): string {
  if (metadata.deletionTimestamp !== undefined) return "Terminating";
  if (status?.reason) return status.reason;
  const all = [
    ...(status?.initContainerStatuses ?? []).filter(({ state }) => state?.terminated?.exitCode !== 0),
    ...containers,
  ];
  const waits = all.map(({ state }) => state?.waiting?.reason).find(Boolean);
  if (waits !== undefined) return waits;
  const running = containers.some(({ state }) => state?.running);
  const ended = containers.map(({ state }) => state?.terminated?.reason).find(Boolean);
  return (running ? undefined : ended) ?? status?.phase ?? "Pending";
}

// The parts of /stats/summary that the page shows.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/#summary-api-source

interface Fs {
  readonly usedBytes?: number;
  readonly availableBytes?: number;
  readonly capacityBytes?: number;
}

interface Used {
  readonly cpu?: { readonly time: string; readonly usageNanoCores?: number };
  readonly memory?: { readonly workingSetBytes?: number };
}

interface Traffic {
  readonly interfaces?: readonly { readonly rxBytes?: number; readonly txBytes?: number }[];
}

interface Summary {
  readonly node: Used & {
    readonly network?: Traffic;
    readonly fs?: Fs;
    readonly runtime?: { readonly imageFs?: Fs };
  };
  readonly pods: readonly (Used & {
    readonly podRef: { readonly uid: string };
    readonly network?: Traffic;
    readonly "ephemeral-storage"?: Fs;
    readonly containers: readonly (Used & { readonly name: string; readonly rootfs?: Fs; readonly logs?: Fs })[];
  })[];
}

/** Builds the page's view of a node's /stats/summary. Pure.
 *  @param now used if the response has no time, milliseconds since the epoch. */
export function usageView(answer: object, now: number): UsageView {
  const { node, pods } = answer as Summary;
  const at = node.cpu ? Date.parse(node.cpu.time) : now;
  const disk = space(node.fs);
  const imageDisk = space(node.runtime?.imageFs);
  return {
    at,
    node: { ...measure(node, node.network), ...(disk && { disk: disk.used }) },
    ...(disk && { disk }),
    ...(imageDisk && { imageDisk }),
    pods: Object.fromEntries(pods.map((pod) => [pod.podRef.uid, podMeasure(pod)])),
  };
}

function podMeasure(pod: Summary["pods"][number]): PodMeasure {
  const disk = pod["ephemeral-storage"]?.usedBytes;
  const containers = pod.containers.map(({ name, rootfs, logs, ...used }) => {
    const own = [rootfs?.usedBytes, logs?.usedBytes].filter((bytes) => bytes !== undefined);
    const onDisk = own.length > 0 ? { disk: sum(own) } : {};
    return [name, { ...measure(used), ...onDisk }] as const;
  });
  return {
    ...measure(pod, pod.network),
    ...(disk !== undefined && { disk }),
    containers: Object.fromEntries(containers),
  };
}

function measure({ cpu, memory }: Used, network?: Traffic): Measure {
  const { usageNanoCores } = cpu ?? {};
  const { workingSetBytes } = memory ?? {};
  const interfaces = network?.interfaces ?? [];
  return {
    ...(usageNanoCores !== undefined && { cpu: Math.round(usageNanoCores / 1e5) / 1e4 }),
    ...(workingSetBytes !== undefined && { memory: workingSetBytes }),
    ...(interfaces.length > 0 && {
      rx: sum(interfaces.map(({ rxBytes = 0 }) => rxBytes)),
      tx: sum(interfaces.map(({ txBytes = 0 }) => txBytes)),
    }),
  };
}

/** Usage of the whole file system, including files that are not the node's. */
function space(fs: Fs | undefined): Space | undefined {
  if (fs?.capacityBytes === undefined || fs.availableBytes === undefined) return undefined;
  return { used: Math.max(0, fs.capacityBytes - fs.availableBytes), capacity: fs.capacityBytes };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);
