import { posix } from "node:path";
import { ContainerState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import { createLimitedWarning } from "../lib/limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { PodCache, Presence } from "../pipeline.ts";
import { type LogSize, logSizes } from "./log-sizes.ts";
import { type RotateDeps, type RotatedLog, rotateLog } from "./rotate.ts";

/** Rules for the logs of all containers: KubeletConfiguration.containerLogMaxSize and its like. */
export interface RotationSettings {
  /** Bytes that a log has when it is rotated; negative for no rotation. */
  readonly maxSizeBytes: number;
  /** Number of files that one container's log may have. */
  readonly maxFiles: number;
  /** Number of logs that are rotated at once. */
  readonly workers: number;
  /** Milliseconds. */
  readonly everyMs: number;
  /** Directory of pod logs on the target. */
  readonly podLogsDir: string;
}

export interface RotationDeps extends Pick<RotateDeps, "host" | "runtime"> {
  readonly settings: RotationSettings;
  readonly cache: Pick<PodCache, "list">;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Name of a container's log below the directory of pod logs: `POD/CONTAINER/N.log`. */
const logName = /^[A-Za-z0-9_][A-Za-z0-9._-]*\/[A-Za-z0-9][A-Za-z0-9._-]*\/\d+\.log$/;

/** Rotates the logs of running containers that have grown to the limit, and has the runtime write anew a log that is missing: a
 *  rotation may have been cut short. Logs that are links are left to the runtime whose files they lead to.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export function createLogRotation(deps: RotationDeps): Service {
  const { settings, host, log, cache } = deps;
  const { podLogsDir, maxFiles, maxSizeBytes, workers, everyMs } = settings;
  const warn = createLimitedWarning(deps, "a container's log could not be rotated, will try again");
  let linked = new Set<string>();
  let told = false;
  const onNoGzip = () => {
    if (!told) log.warn({}, "the target has no gzip: rotated container logs stay uncompressed");
    told = true;
  };

  const tend = async ({ containerId, path }: RotatedLog, size: LogSize | undefined, signal: AbortSignal) => {
    if (size?.is === "other") linked.add(containerId);
    if (size?.is === "missing") await deps.runtime.reopenContainerLog(containerId, signal);
    if (size?.is === "file" && size.bytes >= maxSizeBytes)
      await rotateLog({ ...deps, maxFiles, onNoGzip }, { containerId, path }, signal);
  };
  const failed = (err: unknown, { containerId, path }: RotatedLog) => {
    if (hasCode(err, "unimplemented")) linked.add(containerId);
    // The log of one that has ended meanwhile stays as it is.
    else if (runningLogs(cache).has(containerId)) warn({ err, containerId, path });
  };
  const round = async (signal: AbortSignal) => {
    const running = runningLogs(cache);
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
        await tend(each, sizes.get(each.name), signal).catch((err: unknown) => {
          if (!signal.aborted) failed(err, each);
        });
      }
    };
    await Promise.all(Array.from({ length: Math.min(workers, logs.length) }, work));
  };
  return patrol({ ...deps, name: "log-rotation", everyMs }, round);
}

/** Log paths of running containers, by the containers' IDs. */
function runningLogs(cache: Pick<PodCache, "list">): ReadonlyMap<string, string> {
  const containers = cache.list().flatMap(({ containers }) => containers);
  const running = containers.filter(({ state }) => state === ContainerState.CONTAINER_RUNNING);
  return new Map(running.flatMap(({ id, logPath }) => (logPath ? [[id, logPath] as const] : [])));
}
