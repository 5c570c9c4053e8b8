import { posix } from "node:path";
import { CodedError } from "../../lib/errors.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import { runtimeErrorText } from "../../pod/error-text.ts";
import { type Handler, sendJson, sendText } from "../responses.ts";
import { containerSpec, inContainer } from "../lookup.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

/** The kubelet's default. */
const folder = "checkpoints";

/** POST /checkpoint: saves the state of a running container, including its memory, in an archive on the target.
 *  @see https://kubernetes.io/docs/reference/node/kubelet-checkpoint-api/ */
export function checkpoint(deps: KubeletServerDeps): Handler {
  const { runtime, files, config, clock } = deps;
  return async (request, response, signal) => {
    const { namespace = "", pod: podName = "", container = "" } = request.params as Record<string, string>;
    const pod = deps.desired.byName(namespace, podName);
    if (!pod) return sendText(response, 404, "pod does not exist");
    if (!containerSpec(pod, container)) return sendText(response, 404, `container ${container} does not exist`);
    const given = queryOf(request.originalUrl).getAll("timeout").at(-1);
    if (given !== undefined && !/^-?\d+$/.test(given))
      return sendText(response, 404, "cannot parse value of timeout parameter");
    const timeout = BigInt(given ?? 0);
    const directory = posix.join(config.rootDir, folder);
    const name = `checkpoint-${podName}_${namespace}-${container}-${rfc3339(clock.now())}.tar`;
    const location = posix.join(directory, name);
    const take = async (containerId: string) => {
      if (!runtime.checkpointContainer)
        throw new CodedError("unimplemented", "the container runtime does not support checkpoints");
      if (timeout < 0n) throw new Error("CheckpointContainer requires the timeout value to be > 0");
      await files.apply([{ kind: "mkdir", path: directory, mode: 0o700, parents: true }], signal);
      await runtime.checkpointContainer({ containerId, location, timeout }, signal);
      return location;
    };
    try {
      const taken = await inContainer(deps, pod, container, take, signal);
      if (taken === undefined) throw new Error(`container ${container} not found`);
      sendJson(response, { items: [taken] });
    } catch (error) {
      const what = `${namespace}/${podName}/${container}`;
      sendText(response, 500, `checkpointing of ${what} failed (${runtimeErrorText(error)})`);
    }
  };
}
