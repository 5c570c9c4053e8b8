import { posix } from "node:path";
import type { ContainerConfig, ContainerStatus } from "../gen/cri.ts";
import { removeLogs } from "../host/container-logs.ts";
import { hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Container, Pod } from "../objects.ts";
import { containerLogLink, podLogDirectory } from "../pod/log-paths.ts";
import { containerNameOf } from "../pod/runs.ts";
import type { Host } from "../seams/host.ts";
import type { ContainerStart } from "./start-container.ts";

export interface LogFilesDeps {
  readonly fs: Host["fs"];
  readonly settings: { readonly podLogsDirectory: string; readonly logLinksDirectory: string };
  readonly log: Logger;
}

/** Derives the restart count from log file names, so that a runtime that lost its containers does not overwrite their logs. */
export async function restartCountFromLogs(
  { fs, settings, log }: LogFilesDeps,
  pod: Pod,
  container: Container,
  signal: AbortSignal,
): Promise<number> {
  const directory = posix.join(podLogDirectory(settings.podLogsDirectory, pod), container.name);
  try {
    const files = (await fs.list(directory, signal)).filter(({ kind }) => kind !== "directory");
    const counts = files
      .map(({ name }) => /^(\d+)\.log(?:\..*)?$/.exec(name)?.[1])
      .filter((count) => count !== undefined);
    return counts.reduce((highest, count) => Math.max(highest, Number(count) + 1), 0);
  } catch (error) {
    signal.throwIfAborted();
    if (!hasCode(error, "not_found"))
      log.info({ err: error, directory }, "cannot read restart count from log directory");
    return 0;
  }
}

/** Creates the directory for the logs of a pod's containers. */
export async function createLogDirectory({ fs, settings }: LogFilesDeps, pod: Pod, signal: AbortSignal): Promise<void> {
  const path = podLogDirectory(settings.podLogsDirectory, pod);
  await fs.apply([{ kind: "mkdir", path, mode: 0o755, parents: true }], signal);
}

/** The containers of a pod that have a log directory. */
export async function loggedContainers(
  { fs, settings }: LogFilesDeps,
  pod: Pod,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const directory = podLogDirectory(settings.podLogsDirectory, pod);
  try {
    return new Set((await fs.list(directory, signal)).map(({ name }) => name));
  } catch (error) {
    if (hasCode(error, "not_found")) return new Set();
    throw error;
  }
}

/** Links a container's log into the directory of log collectors. */
export async function linkLog(
  { fs, settings }: LogFilesDeps,
  { pod, container, sandbox }: ContainerStart,
  { logPath }: ContainerConfig,
  containerId: string,
): Promise<void> {
  const target = posix.join(sandbox.config.logDirectory, logPath);
  // If the runtime logs elsewhere, the file does not exist and the link would dangle.
  if (!(await ignoreNotFound(fs.stat(target)))) return;
  const path = containerLogLink(settings.logLinksDirectory, pod, container.name, containerId);
  await fs.apply([
    { kind: "mkdir", path: settings.logLinksDirectory, mode: 0o755, parents: true },
    { kind: "symlink", path, target },
  ]);
}

/** Removes the log of a container that is about to be removed, with its rotated files and its link. */
export async function removeLog(
  { fs, settings }: LogFilesDeps,
  { metadata }: Pod,
  status: Pick<ContainerStatus, "id" | "logPath" | "labels" | "metadata">,
  signal: AbortSignal,
): Promise<void> {
  if (status.logPath) await removeLogs(fs, [status.logPath], signal);
  const path = containerLogLink(settings.logLinksDirectory, { metadata }, containerNameOf(status), status.id);
  await fs.apply([{ kind: "remove", path }], signal);
}
