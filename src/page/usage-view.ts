import type { Measure, PodMeasure, Space, UsageView } from "./messages.ts";

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
