import type { Clock } from "../../lib/clock.ts";
import { hasCode, throwIfAborted } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { type CgroupLimits, type Cgroups, openCgroups, weightOf } from "../cgroups.ts";
import { createSystemdClient } from "./systemd-client.ts";
import { type UnitProperty, limitProperties, newSlice, roundedLimits, slicesOf } from "./slices.ts";

export interface SystemdCgroupsDeps {
  readonly host: Host;
  /** The target's cgroup version. */
  readonly version: 1 | 2;
  readonly clock: Clock;
}

type Change<T> = (path: string, limits: CgroupLimits, signal: AbortSignal) => Promise<T>;

/** Cgroups managed as systemd slices, with paths such as `/kubepods.slice/kubepods-burstable.slice`. systemd creates, limits
 *  and removes them in its own hierarchies, so that it does not revert changes it does not know of; limits without a property,
 *  exact values and the other hierarchies are written to cgroup files. systemd is not contacted before the first change.
 *  @see https://systemd.io/CGROUP_DELEGATION/ */
export async function openSystemdCgroups(
  { host, version, clock }: SystemdCgroupsDeps,
  signal: AbortSignal,
): Promise<Cgroups & AsyncDisposable> {
  const files = await openCgroups(host, version, signal);
  const units = createSystemdClient({ host, clock });
  let systemd: number | undefined;
  /** Running slices. */
  const started = new Set<string>();
  const forget = (path: string) => slicesOf(path).forEach(({ slice }) => started.delete(slice));
  const start = async (path: string, properties: readonly UnitProperty[], stop: AbortSignal) => {
    const slices = slicesOf(path);
    const own = slices.at(-1)?.slice;
    let isNew = false;
    for (const { slice, parent } of slices.filter((each) => !started.has(each.slice))) {
      const limits = slice === own ? properties : [];
      isNew = await units.start(slice, [...newSlice(slice, parent, version), ...limits], stop);
      started.add(slice);
    }
    if (own !== undefined && !isNew && properties.length > 0) await units.set(own, properties, stop);
  };
  const change = async (path: string, limits: CgroupLimits, stop: AbortSignal) => {
    systemd ??= await units.version(stop);
    const properties = limitProperties(limits, version, systemd, weightOf);
    try {
      await start(path, properties, stop);
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error; // The slice was stopped by another process.
      forget(path);
      await start(path, properties, stop);
    }
  };
  const both = async <T>(how: Change<T>, path: string, limits: CgroupLimits, stop: AbortSignal): Promise<T> => {
    const rounded = roundedLimits(limits);
    const wasStarted = started.has(slicesOf(path).at(-1)?.slice ?? "");
    await change(path, limits, stop);
    try {
      return await how(path, rounded, stop);
    } catch (error) {
      throwIfAborted(stop);
      if (!wasStarted) throw error; // The slice was stopped by another process.
      forget(path);
      await change(path, limits, stop);
      return await how(path, rounded, stop);
    }
  };
  return {
    ...files,
    ensure: (path, limits, stop) => both(files.ensure, path, limits, stop),
    create: (path, limits, stop) => both(files.create, path, limits, stop),
    async remove(paths, stop) {
      for (const path of paths) started.delete(slicesOf(path).at(-1)?.slice ?? "");
      const last = paths.flatMap((path) => slicesOf(path).slice(-1));
      await Promise.all(last.map(({ slice }) => units.stop(slice, stop)));
      await files.remove(paths, stop);
    },
    [Symbol.asyncDispose]: () => units[Symbol.asyncDispose](),
  };
}
