import { fileSystemDevices } from "../host/disk-usage.ts";
import { type GroupMemory, type HostUsage, readGroupMemory, readUsage } from "../host/usage.ts";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { untilAborted } from "../lib/runnables.ts";
import { type CgroupLayout, kubepodsCgroup } from "../pod/cgroup-path.ts";
import type { FileSystemInfo, Host } from "../seams/host.ts";
import type { Images } from "../seams/runtime.ts";
import type { MemoryReading } from "./memory-bounds.ts";
import type { NodeSignal, SignalObservation, Observations } from "./signals.ts";
import type { DiskLayout } from "./thresholds.ts";

export interface ObserverDeps extends ClockAndLog {
  readonly host: Pick<Host, "fs" | "run">;
  readonly images: Pick<Images, "imageFsInfo">;
  /** The target's root directory. */
  readonly rootDir: string;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly cgroupVersion: 1 | 2;
  readonly maxPid: number;
}

export interface NodeObservation {
  readonly observations: Observations;
  /** Memory behind the observations, if read from cgroups. */
  readonly memory: ReadonlyMap<NodeSignal, MemoryReading>;
  /** Undefined until the runtime has reported its file systems. */
  readonly disks: DiskLayout | undefined;
  /** Why the target cannot be read, if so. */
  readonly problem: string | undefined;
}

const observationTimeoutMs = 5_000;

/** Observes the resources of all eviction signals. Unreadable resources are omitted and logged once. A read that hangs does not delay
 *  the others, and is not repeated before it has ended. */
export function createObserver(deps: ObserverDeps): (signal: AbortSignal) => Promise<NodeObservation> {
  const { host, rootDir, cgroupVersion: version, maxPid } = deps;
  const reading = <T>(name: string, read: (signal: AbortSignal) => Promise<T>) =>
    createResourceReader(deps, name, read);
  const usage = reading("memory and processes", (signal) => readUsage(host, signal));
  const ofPods = reading("memory of all pods", async (signal) => {
    const cgroup = kubepodsCgroup(await deps.layout(signal));
    const memory = await readGroupMemory(host, version, cgroup, signal);
    return memory && { ...memory, cgroup };
  });
  const places = createRuntimePaths(deps, reading);
  const nodeFs = reading("nodefs", (signal) => host.fs.fileSystemInfo(rootDir, signal));
  const imageFs = reading("imagefs", (signal) => spaceAt(host, places.known()?.images, signal));
  const containerFs = reading("containerfs", (signal) => spaceAt(host, places.known()?.layers, signal));
  return async (given) => {
    const signal = deps.clock.within(observationTimeoutMs, given);
    const ofRuntime = places.find(signal).then(() => Promise.all([imageFs.now(signal), containerFs.now(signal)]));
    const [machine, pods, node, [images, layers]] = await Promise.all([
      usage.now(signal),
      ofPods.now(signal),
      nodeFs.now(signal),
      ofRuntime,
    ]);
    given.throwIfAborted();
    const all: readonly (readonly [NodeSignal, SignalObservation | undefined])[] = [
      ["memory.available", machine && observationOf(machine.memoryBytes, machine.workingSetBytes)],
      ["allocatableMemory.available", pods && observationOf(pods.limitBytes, pods.workingSetBytes)],
      ...spaces("nodefs", node),
      ...spaces("imagefs", images),
      ...spaces("containerfs", layers),
      ["pid.available", machine && { available: maxPid - machine.processes, capacity: maxPid }],
    ];
    return {
      observations: new Map(all.flatMap(([name, seen]) => (seen ? [[name, seen] as const] : []))),
      memory: memoryOf(machine, pods),
      disks: places.known()?.disks,
      problem: usage.problem() ?? nodeFs.problem(),
    };
  };
}

function memoryOf(
  machine: HostUsage | undefined,
  pods: (GroupMemory & { readonly cgroup: string }) | undefined,
): ReadonlyMap<NodeSignal, MemoryReading> {
  const readings = new Map<NodeSignal, MemoryReading>();
  if (machine?.usageBytes !== undefined) {
    const { usageBytes: usage, workingSetBytes: workingSet, memoryBytes: capacity } = machine;
    readings.set("memory.available", { cgroup: "", usage, workingSet, capacity });
  }
  if (pods) {
    const { cgroup, usageBytes: usage, workingSetBytes: workingSet, limitBytes: capacity } = pods;
    readings.set("allocatableMemory.available", { cgroup, usage, workingSet, capacity });
  }
  return readings;
}

function observationOf(capacity: number, used: number): SignalObservation {
  return { available: Math.max(0, capacity - used), capacity };
}

function spaces(
  name: "nodefs" | "imagefs" | "containerfs",
  space: FileSystemInfo | undefined,
): readonly (readonly [NodeSignal, SignalObservation | undefined])[] {
  return [
    [`${name}.available`, space && { available: space.availableBytes, capacity: space.capacityBytes }],
    // Some file systems have no fixed number of inodes.
    [
      `${name}.inodesFree`,
      space && space.inodes > 0 ? { available: space.inodesFree, capacity: space.inodes } : undefined,
    ],
  ];
}

async function spaceAt(
  host: ObserverDeps["host"],
  path: string | undefined,
  signal: AbortSignal,
): Promise<FileSystemInfo | undefined> {
  return path === undefined ? undefined : host.fs.fileSystemInfo(path, signal);
}

/** Locations of the runtime's files. */
interface RuntimePaths {
  readonly images: string | undefined;
  readonly layers: string | undefined;
  readonly disks: DiskLayout;
  /** True if the runtime does not know yet where its layers are, and so may name another file system later. */
  readonly isProvisional: boolean;
}

/** Determines the file systems with the runtime's images and layers: once, as soon as the runtime responds and knows where its
 *  layers are. */
function createRuntimePaths(
  { host, images: runtime, rootDir }: ObserverDeps,
  reading: <T>(name: string, read: (signal: AbortSignal) => Promise<T>) => ResourceReader<T>,
) {
  let known: RuntimePaths | undefined;
  const ask = reading("file systems of the runtime", async (signal) => {
    const { imageFilesystems, containerFilesystems } = await runtime.imageFsInfo(signal);
    const [ofContainers] = containerFilesystems;
    const images = imageFilesystems[0]?.fsId?.mountpoint || undefined;
    const layers = ofContainers?.fsId?.mountpoint || images;
    const places = [rootDir, images ?? rootDir, layers ?? rootDir];
    const [node, ofImages, ofLayers] = await fileSystemDevices(host, places, signal);
    const dedicatedImageFs = ofImages !== node;
    const disks = { dedicatedImageFs, splitContainerFs: dedicatedImageFs && ofLayers !== ofImages };
    return { images, layers, disks, isProvisional: ofContainers !== undefined && !ofContainers.fsId?.mountpoint };
  });
  return {
    known: () => known,
    async find(signal: AbortSignal): Promise<void> {
      if (known === undefined || known.isProvisional) known = (await ask.now(signal)) ?? known;
    },
  };
}

interface ResourceReader<T> {
  /** Undefined if it cannot be read in time. */
  now(signal: AbortSignal): Promise<T | undefined>;
  /** Why the last read failed. */
  problem(): string | undefined;
}

function createResourceReader<T>(
  { log }: Pick<ObserverDeps, "log">,
  name: string,
  read: (signal: AbortSignal) => Promise<T>,
): ResourceReader<T> {
  let running: Promise<T> | undefined;
  let problem: string | undefined;
  const fail = (why: string): undefined => {
    if (problem === undefined)
      log.warn({ why }, `eviction manager: cannot read ${name}; ignoring its thresholds until it can be read`);
    problem = why;
  };
  const begin = async (signal: AbortSignal): Promise<T> => {
    try {
      return await read(signal);
    } finally {
      running = undefined;
    }
  };
  return {
    problem: () => problem,
    async now(signal) {
      if (running) return fail("the previous read is still in progress");
      running = begin(signal);
      try {
        const value = await untilAborted(running, signal);
        problem = undefined;
        return value;
      } catch (error) {
        return fail(messageOf(error));
      }
    },
  };
}
