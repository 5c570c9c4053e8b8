import { posix } from "node:path";
import { ContainerState } from "../gen/cri.ts";
import { hasCode } from "../lib/errors.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { PodCache, WaitForTarget } from "../pipeline.ts";
import { type RotateDeps, type LogToRotate, rotateLog } from "./rotate.ts";
import type { FileInfo, Host } from "../seams/host.ts";
import { script } from "../seams/command.ts";

/** Settings for log rotation: KubeletConfiguration.containerLogMaxSize and so on. */
export interface RotationSettings {
  /** Size at which a log is rotated, bytes; negative to disable rotation. */
  readonly maxSizeBytes: number;
  /** Maximum number of files of a container's log. */
  readonly maxFiles: number;
  /** Number of logs rotated concurrently. */
  readonly workers: number;
  readonly intervalMs: number;
  readonly podLogsDir: string;
}

export interface RotationDeps extends Pick<RotateDeps, "host" | "runtime">, ClockAndLog {
  readonly settings: RotationSettings;
  readonly podCache: Pick<PodCache, "list">;
  readonly waitForTarget: WaitForTarget | undefined;
}

/** Path of a container's log in the pod log directory: `POD/CONTAINER/N.log`. */
const logName = /^[A-Za-z0-9_][A-Za-z0-9._-]*\/[A-Za-z0-9][A-Za-z0-9._-]*\/\d+\.log$/;

/** Rotates the logs of running containers that have reached the limit, and makes the runtime reopen a missing log, since a
 *  rotation may have been interrupted. Logs that are symlinks are left to the runtime that owns their targets.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export function createLogRotation(deps: RotationDeps): Runnable {
  const { settings, host, log, podCache } = deps;
  const { podLogsDir, maxFiles, maxSizeBytes, workers, intervalMs } = settings;
  const warn = createRateLimitedWarning(deps, "cannot rotate container log; retrying");
  let linked = new Set<string>();
  let hasLoggedNoGzip = false;
  const onNoGzip = () => {
    if (!hasLoggedNoGzip) log.warn({}, "gzip not found on the target; leaving rotated container logs uncompressed");
    hasLoggedNoGzip = true;
  };

  const checkLog = async ({ containerId, path }: LogToRotate, size: LogSize | undefined, signal: AbortSignal) => {
    if (size?.kind === "other") linked.add(containerId);
    if (size?.kind === "missing") await deps.runtime.reopenContainerLog(containerId, signal);
    if (size?.kind === "file" && size.bytes >= maxSizeBytes)
      await rotateLog({ ...deps, maxFiles, onNoGzip }, { containerId, path }, signal);
  };
  const failed = (err: unknown, { containerId, path }: LogToRotate) => {
    if (hasCode(err, "unimplemented")) linked.add(containerId);
    // The log of a container that has ended meanwhile is left as is.
    else if (runningLogs(podCache).has(containerId)) warn({ err, containerId, path });
  };
  const round = async (signal: AbortSignal) => {
    const running = runningLogs(podCache);
    linked = new Set([...linked].filter((id) => running.has(id)));
    const logs = [...running].flatMap(([containerId, path]) => {
      const name = posix.relative(podLogsDir, path);
      return logName.test(name) && !linked.has(containerId) ? [{ containerId, path, name }] : [];
    });
    if (logs.length === 0) return;
    const names = logs.map(({ name }) => name);
    const sizes = await logSizes(host, podLogsDir, names, signal);
    const queue = logs.values();
    const work = async () => {
      for (const each of queue) {
        if (signal.aborted) return;
        await checkLog(each, sizes.get(each.name), signal).catch((err: unknown) => {
          if (!signal.aborted) failed(err, each);
        });
      }
    };
    await Promise.all(Array.from({ length: Math.min(workers, logs.length) }, work));
  };
  return runPeriodically({ ...deps, name: "log-rotation", intervalMs }, round);
}

/** Log paths of running containers, by container ID. */
function runningLogs(cache: Pick<PodCache, "list">): ReadonlyMap<string, string> {
  const containers = cache.list().flatMap(({ containers }) => containers);
  const running = containers.filter(({ state }) => state === ContainerState.CONTAINER_RUNNING);
  return new Map(running.flatMap(({ id, logPath }) => (logPath ? [[id, logPath] as const] : [])));
}

/** Type bits of a mode, and their value for a regular file. */
const typeBits = 0o170000;
const regular = 0o100000;

/** Prints `MODE SIZE NAME` of each existing file; the NUL-terminated names are read from standard input. */
const describing = `cd "$1" && exec xargs -0 stat -c '%f %s %n' --`;
/** Maximum length of one such line, bytes. */
const lineBytes = 1024;

type LogSize = { readonly kind: "file"; readonly bytes: number } | { readonly kind: "other" | "missing" };

/** Sizes of log files, by lstat where that is cheaper; otherwise with one command for all of them, and lstat for each one
 *  missing in its output. @param root directory of the pods' logs. @param names paths below `root`. @returns the result for
 *  each name; unreadable files are omitted. @throws CodedError, such as unavailable, if the target cannot be queried. */
async function logSizes(
  host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "lstat" | "lstatAll"> },
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, LogSize>> {
  const pathOf = (name: string) => `${root}/${name}`;
  if (host.fs.lstatAll) {
    const found = await host.fs.lstatAll(names.map(pathOf), signal);
    const known = names.filter((name) => found.has(pathOf(name)));
    return new Map(known.map((name) => [name, sizeOf(found.get(pathOf(name)))]));
  }
  const sizes = new Map(await sizesByCommand(host, root, names, signal));
  // Sequentially: a hanging file system blocks one of the target's threads, not all of them.
  for (const name of names) {
    if (sizes.has(name)) continue;
    const size = await sizeByLstat(host, pathOf(name), signal);
    if (size) sizes.set(name, size);
  }
  return sizes;
}

function sizeOf(info: FileInfo | undefined): LogSize {
  if (!info) return { kind: "missing" };
  return info.kind === "file" ? { kind: "file", bytes: info.size } : { kind: "other" };
}

async function sizesByCommand(
  host: Pick<Host, "run">,
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly (readonly [string, LogSize])[]> {
  const { stdout } = await host.run(script(describing, root), {
    stdin: names.map((name) => `${name}\0`).join(""),
    maxOutputBytes: lineBytes * (names.length + 1),
    signal,
  });
  return stdout.split("\n").flatMap(sizeIn);
}

function sizeIn(line: string): readonly (readonly [string, LogSize])[] {
  const [, mode, size, name] = /^([0-9a-f]+) (\d+) (.+)$/.exec(line) ?? [];
  if (mode === undefined || size === undefined || name === undefined) return [];
  const isFile = (Number.parseInt(mode, 16) & typeBits) === regular;
  return [[name, isFile ? { kind: "file", bytes: Number(size) } : { kind: "other" }]];
}

async function sizeByLstat(
  { fs }: { readonly fs: Pick<Host["fs"], "lstat"> },
  path: string,
  signal: AbortSignal,
): Promise<LogSize | undefined> {
  try {
    return sizeOf(await fs.lstat(path, signal));
  } catch (error) {
    if (hasCode(error, "not_found")) return { kind: "missing" };
    if (hasCode(error, "unavailable", "cancelled", "deadline_exceeded")) throw error;
    return undefined;
  }
}
