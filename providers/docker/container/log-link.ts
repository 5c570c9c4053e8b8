import { posix } from "node:path";
import type { ContainerInspectInfo } from "dockerode";
import { hasCode } from "../../../src/lib/errors.ts";
import { logPathLabel } from "./names.ts";
import type { DockerParts } from "../parts.ts";

type Parts = Pick<DockerParts, "host" | "log">;

/** Links the path at which a kubelet expects a container's log to the file that Docker writes. The link is made with the
 *  container, before it starts: a container that ran has its link, whenever graftlet ended. The file lies beside the
 *  sandbox's own: the Engine API names it only once the container has started. A link that cannot be made leaves the log to
 *  be read over the API.
 *  @param sandbox the container's, running. */
export async function linkLog(
  { host, log }: Parts,
  sandbox: Pick<ContainerInspectInfo, "ResolvConfPath">,
  container: { readonly id: string; readonly logPath: string },
  signal: AbortSignal,
): Promise<void> {
  const { id, logPath } = container;
  const containersDirectory = posix.dirname(posix.dirname(sandbox.ResolvConfPath));
  try {
    await host.fs.apply(
      [
        { do: "mkdir", path: posix.dirname(logPath), mode: 0o755, parents: true },
        { do: "remove", path: logPath },
        { do: "symlink", path: logPath, target: posix.join(containersDirectory, id, logFileName(id)) },
      ],
      signal,
    );
  } catch (error) {
    log.warn({ err: error, container: id, path: logPath }, "log could not be linked, it is read over the API");
  }
}

/** Removes the link of a container that is gone, unless it leads to another's log meanwhile. */
export async function unlinkLog(
  { host, log }: Parts,
  { Id, Config }: Pick<ContainerInspectInfo, "Id" | "Config">,
  signal: AbortSignal,
): Promise<void> {
  const path = Config.Labels?.[logPathLabel];
  if (!path) return;
  try {
    if (posix.basename(await host.fs.readlink(path, signal)) !== logFileName(Id)) return;
    await host.fs.apply([{ do: "remove", path }], signal);
  } catch (error) {
    if (hasCode(error, "not_found")) return;
    log.warn({ err: error, container: Id, path }, "link to a removed log is left behind");
  }
}

/** How the json-file driver names its file. @see https://docs.docker.com/engine/logging/drivers/json-file/ */
function logFileName(id: string): string {
  return `${id}-json.log`;
}
