import type { Pressure } from "../pipeline.ts";
import type { FileSystemInfo } from "../seams/host.ts";
import { type ResourceList, thresholdValue } from "./capacity.ts";

/** The target's available resources at one moment. */
export interface Readings {
  readonly memoryBytes: number;
  readonly workingSetBytes: number;
  readonly processes: number;
  readonly maxPid: number;
  /** File system of the root directory. */
  readonly nodeFs: FileSystemInfo;
  /** File system of the images; undefined when the runtime does not report it. */
  readonly imageFs: FileSystemInfo | undefined;
}

/** Resources below their hard eviction threshold.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds */
export function pressureOf(readings: Readings, evictionHard: ResourceList): Pressure {
  const below = (signal: string, available: number, total: number) =>
    available < thresholdValue(evictionHard[signal], total);
  const { memoryBytes, workingSetBytes, processes, maxPid } = readings;
  const full = (name: string, fs: FileSystemInfo | undefined) =>
    fs !== undefined &&
    (below(`${name}.available`, fs.availableBytes, fs.capacityBytes) ||
      below(`${name}.inodesFree`, fs.inodesFree, fs.inodes));
  return {
    memory: below("memory.available", memoryBytes - workingSetBytes, memoryBytes),
    disk: full("nodefs", readings.nodeFs) || full("imagefs", readings.imageFs),
    pid: below("pid.available", maxPid - processes, maxPid),
  };
}

/** Keeps a pressure for a while after it has gone, so that conditions do not flap.
 *  @param transitionMs KubeletConfiguration.evictionPressureTransitionPeriod. */
export function createLinger(transitionMs: number): (pressure: Pressure, nowMs: number) => Pressure {
  const last = new Map<keyof Pressure, number>();
  return (pressure, nowMs) => {
    const stands = (name: keyof Pressure) => {
      if (pressure[name]) last.set(name, nowMs);
      const since = last.get(name);
      return since !== undefined && nowMs - since < transitionMs;
    };
    return {
      memory: stands("memory") || pressure.memory,
      disk: stands("disk") || pressure.disk,
      pid: stands("pid") || pressure.pid,
    };
  };
}
