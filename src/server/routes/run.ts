import { runtimeErrorText } from "../../pod/error-text.ts";
import { type Handler, sendText } from "../responses.ts";
import { inContainer, placeholderText } from "../lookup.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

/** POST /run: runs `cmd`, split at spaces, to its end and returns all its output. */
export function run(deps: KubeletServerDeps): Handler {
  return async (request, response, signal) => {
    const { namespace = "", pod: podName = "", container = "" } = request.params as Record<string, string>;
    const pod = deps.desired.byName(namespace, podName);
    if (!pod) return sendText(response, 404, "pod does not exist");
    const placeholder = placeholderText(deps, pod);
    if (placeholder !== undefined) return sendText(response, 400, placeholder);
    const argv = (queryOf(request.originalUrl).get("cmd") ?? "").split(" ");
    try {
      const run = (id: string) => deps.runtime.execSync(id, argv, 0, signal);
      const outcome = await inContainer(deps, pod, container, run, signal);
      if (!outcome) return sendText(response, 500, `container not found (${JSON.stringify(container)})`);
      const { stdout, stderr, exitCode } = outcome;
      if (exitCode !== 0) {
        const output = Buffer.from(stderr).toString();
        return sendText(response, 500, `command '${argv.join(" ")}' exited with ${exitCode}: ${output}`);
      }
      response
        .status(200)
        .type("application/json")
        .end(Buffer.concat([stdout, stderr]));
    } catch (error) {
      sendText(response, 500, runtimeErrorText(error));
    }
  };
}
