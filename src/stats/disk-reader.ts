import type * as cri from "../gen/cri.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import { fileSystemDevice } from "../host/disk-usage.ts";
import { CodedError, ignoreCode } from "../lib/errors.ts";
import type { Pod, Volume } from "../objects.ts";
import { ephemeralFiles, isEphemeral, layerKey, newestLayers } from "../pod/ephemeral-files.ts";
import { claimUsage, type ClaimUsageDeps } from "./claim-usage.ts";
import type { Host } from "../seams/host.ts";
import type { Images, Stats } from "../seams/runtime.ts";
import {
  type DiskStats,
  type DiskUse,
  type MeasuredPod,
  type PodDisk,
  type VolumeDiskUse,
  sumUse,
  totalUse,
} from "./disk-stats.ts";

export interface DiskDeps extends Omit<ClaimUsageDeps, "host"> {
  readonly host: Pick<Host, "fs" | "run">;
  readonly disk: DiskMeter;
  readonly runtime: Pick<Stats, "listContainerStats"> & Pick<Images, "imageFsInfo">;
  /** The target's root directory. */
  readonly rootDir: string;
  /** KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
}

/** Maximum age of another component's measurement for reuse, milliseconds. */
const maxAgeMs = 10_000;

/** A volume whose files are measured. */
interface Counted {
  readonly volume: Volume;
  readonly path: string;
}

/** Measurements of files by path, and of layers by `layerKey`. */
interface Sizes {
  readonly bytes: ReadonlyMap<string, number>;
  readonly inodes: ReadonlyMap<string, number>;
  readonly layers: ReadonlyMap<string, cri.FilesystemUsage>;
  /** File systems of volumes that are separate mounts. */
  readonly spaces: ReadonlyMap<string, DiskUse>;
  readonly claims: ReadonlyMap<Pod, readonly VolumeDiskUse[]>;
}

/** Measures the target's disk usage by walking the pods' files, which may be slow. */
export function createDiskReader(
  deps: DiskDeps,
): (measured: readonly MeasuredPod[], signal: AbortSignal) => Promise<DiskStats> {
  const { disk, runtime, rootDir } = deps;
  const spaceAt = createSpaces(deps);
  const fileSystemAt = withDevices(deps.host, spaceAt);
  return async (measured, signal) => {
    const running = new Map(measured.map((one) => [one.uid, new Set(one.running)]));
    const pods = measured.flatMap(({ uid }) => deps.desired.get(uid) ?? []);
    const counted = new Map(pods.map((pod) => [pod, countedVolumes(deps, pod)]));
    const paths = pods.flatMap((pod) => {
      const { logs, hostsFile } = ephemeralFiles(pod, deps);
      return [...(counted.get(pod) ?? []).map(({ path }) => path), ...logs.values(), hostsFile];
    });
    const mounts = [...counted.values()].flat().filter(({ volume }) => !isEphemeral(volume));
    const [node, fs, bytes, inodes, layers, spaces, claims] = await Promise.all([
      fileSystemAt(rootDir, signal),
      runtime.imageFsInfo(signal),
      disk.bytes(paths, maxAgeMs, signal),
      disk.inodes(paths, maxAgeMs, signal),
      runtime.listContainerStats(undefined, signal),
      Promise.all(mounts.map(async ({ path }) => [path, await spaceAt(path, signal)] as const)),
      Promise.all(pods.map(async (pod) => [pod, await claimUsage(deps, pod, signal)] as const)).then(
        (of) => new Map(of),
      ),
    ]);
    const [ofImages, ofLayers] = [fs.imageFilesystems[0], fs.containerFilesystems[0]];
    const onImages = await runtimeSpace(ofImages, fileSystemAt, signal);
    const onLayers = await runtimeSpace(ofLayers, fileSystemAt, signal);
    const images = onImages && withRuntimeBytes(ofImages, onImages);
    const containers = (onLayers && withRuntimeBytes(ofLayers, onLayers)) ?? images;
    const known = new Map(spaces.flatMap(([path, space]) => (space ? [[path, space] as const] : [])));
    if (!node) throw new CodedError("not_found", `${rootDir} does not exist on the target`);
    const sizes: Sizes = { bytes, inodes, layers: newestLayers(layers), spaces: known, claims };
    const on = { node, layers: containers };
    return {
      node: on.node,
      ...(images && { images }),
      ...(containers && { layers: containers }),
      fileSystems: distinct([on.node, onImages, onLayers]),
      pods: new Map(
        pods.map((pod) => {
          const { uid } = pod.metadata;
          const files = { counted: counted.get(pod) ?? [], running: running.get(uid) ?? new Set<string>() };
          return [uid, podDisk(deps, pod, files, sizes, on)];
        }),
      ),
    };
  };
}

/** Volumes whose files the node creates; others are measured by their providers. */
function countedVolumes({ volumes }: DiskDeps, { metadata, spec }: Pod): readonly Counted[] {
  const mounted = volumes.mounted(metadata.uid);
  return (spec.volumes ?? []).flatMap((volume) => {
    const { name, emptyDir, configMap, secret, projected, downwardAPI } = volume;
    const made = configMap ?? secret ?? projected ?? downwardAPI ?? emptyDir;
    const path = mounted.get(name)?.hostPath;
    return made && path !== undefined ? [{ volume, path }] : [];
  });
}

function podDisk(
  deps: DiskDeps,
  pod: Pod,
  { counted, running }: { readonly counted: readonly Counted[]; readonly running: ReadonlySet<string> },
  { bytes, inodes, layers, spaces, claims }: Sizes,
  on: { readonly node: DiskUse; readonly layers: DiskUse | undefined },
): PodDisk {
  const taken = (space: DiskUse, path: string): DiskUse => {
    const { usedBytes: _bytes, inodesUsed: _inodes, ...rest } = space;
    return { ...rest, ...used(bytes.get(path), inodes.get(path)) };
  };
  const { logs, hostsFile } = ephemeralFiles(pod, deps);
  const volumes = counted.map(({ volume, path }) => ({
    name: volume.name,
    use: taken(spaces.get(path) ?? on.node, path),
    ephemeral: isEphemeral(volume),
  }));
  const ofLogs = new Map([...logs].map(([name, path]) => [name, taken(on.node, path)]));
  const ofLayers = new Map(
    [...logs.keys()].flatMap((name) => {
      const layer = layers.get(layerKey(pod.metadata.uid, name));
      return layer ? [[name, layerUse(layer, on.layers ?? on.node)] as const] : [];
    }),
  );
  const parts = [
    ...volumes.filter(({ ephemeral }) => ephemeral).map(({ use }) => use),
    ...[...running].flatMap((name) => [ofLogs.get(name), ofLayers.get(name)]),
    taken(on.node, hostsFile),
  ];
  return {
    volumes: [...volumes, ...(claims.get(pod) ?? [])],
    logs: ofLogs,
    layers: ofLayers,
    ephemeral: sumUse(on.node, parts),
  };
}

function layerUse({ usedBytes, inodesUsed }: cri.FilesystemUsage, space: DiskUse): DiskUse {
  const { usedBytes: _bytes, inodesUsed: _inodes, ...rest } = space;
  return { ...rest, ...used(usedBytes && Number(usedBytes.value), inodesUsed && Number(inodesUsed.value)) };
}

function used(usedBytes: number | undefined, inodesUsed: number | undefined): Partial<DiskUse> {
  return { ...(usedBytes !== undefined && { usedBytes }), ...(inodesUsed !== undefined && { inodesUsed }) };
}

type SpaceAt = (path: string, signal: AbortSignal) => Promise<DiskUse | undefined>;

/** Total usage of the file system at a path; undefined if the path is gone. */
function createSpaces({ host, clock }: DiskDeps): SpaceAt {
  return async (path, signal) => {
    const space = await ignoreCode(host.fs.fileSystemInfo(path, signal), "not_found", "permission_denied");
    return space && totalUse(space, clock.now());
  };
}

/** Adds the file system's device to the usage; the device at a path is looked up once. */
function withDevices(host: DiskDeps["host"], spaceAt: SpaceAt): SpaceAt {
  const devices = new Map<string, string>();
  return async (path, signal) => {
    const space = await spaceAt(path, signal);
    if (space && !devices.has(path)) devices.set(path, await fileSystemDevice(host, path, signal));
    return space && { ...space, device: devices.get(path) ?? "" };
  };
}

/** Total usage of one of the runtime's file systems. */
async function runtimeSpace(
  usage: cri.FilesystemUsage | undefined,
  spaceAt: SpaceAt,
  signal: AbortSignal,
): Promise<DiskUse | undefined> {
  const path = usage?.fsId?.mountpoint;
  return path ? spaceAt(path, signal) : undefined;
}

/** A file system's usage with the number of used bytes that the runtime reports, if it does. */
function withRuntimeBytes(usage: cri.FilesystemUsage | undefined, space: DiskUse): DiskUse {
  const bytes = usage?.usedBytes && Number(usage.usedBytes.value);
  return { ...space, ...(bytes !== undefined && { usedBytes: bytes }) };
}

/** Keeps one entry per device, and drops unknown ones. */
function distinct(all: readonly (DiskUse | undefined)[]): readonly DiskUse[] {
  return [...new Map(all.flatMap((use) => (use ? [[use.device, use] as const] : []))).values()];
}
