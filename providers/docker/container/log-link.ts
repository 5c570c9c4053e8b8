import { posix } from "node:path";
import type { ContainerInspectInfo } from "dockerode";
import { hasCode } from "../../../src/lib/errors.ts";
import { logPathLabel } from "./names.ts";
import type { DockerParts } from "../parts.ts";

type LogLinkDeps = Pick<DockerParts, "host" | "log">;

/** Links the CRI log path to the file that Docker writes, before the container starts, so that the link exists even if graftlet stops right
 *  after. The file is in the sandbox's parent directory: the Engine API reports it only after the start. If linking fails, the log is read
 *  over the API.
 *  @param sandbox the container's running sandbox. */
export async function linkEngineLog(
  { host, log }: LogLinkDeps,
  sandbox: Pick<ContainerInspectInfo, "ResolvConfPath">,
  container: { readonly id: string; readonly logPath: string },
  signal: AbortSignal,
): Promise<void> {
  const { id, logPath } = container;
  const containersDirectory = posix.dirname(posix.dirname(sandbox.ResolvConfPath));
  try {
    await host.fs.apply(
      [
        { kind: "mkdir", path: posix.dirname(logPath), mode: 0o755, parents: true },
        { kind: "remove", path: logPath },
        { kind: "symlink", path: logPath, target: posix.join(containersDirectory, id, logFileName(id)) },
      ],
      signal,
    );
  } catch (error) {
    log.warn({ err: error, container: id, path: logPath }, "cannot link container log; falling back to the Docker API");
  }
}

/** Removes the link of a removed container, unless it points to another log by now. */
export async function unlinkLog(
  { host, log }: LogLinkDeps,
  { Id, Config }: Pick<ContainerInspectInfo, "Id" | "Config">,
  signal: AbortSignal,
): Promise<void> {
  const path = Config.Labels?.[logPathLabel];
  if (!path) return;
  try {
    if (posix.basename(await host.fs.readlink(path, signal)) !== logFileName(Id)) return;
    await host.fs.apply([{ kind: "remove", path }], signal);
  } catch (error) {
    if (hasCode(error, "not_found")) return;
    log.warn({ err: error, container: Id, path }, "cannot remove the log link of a removed container");
  }
}

/** Name of the json-file driver's file. @see https://docs.docker.com/engine/logging/drivers/json-file/ */
function logFileName(id: string): string {
  return `${id}-json.log`;
}
