import type { AttachRequest, ExecRequest, PortForwardRequest } from "../../src/gen/cri.ts";
import type { Streams } from "../../src/seams/runtime.ts";
import type { StreamServer } from "../../src/streams/stream-server.ts";
import { attach } from "./exec/attach.ts";
import { createExec } from "./exec/process.ts";
import { streamExec } from "./exec/stream.ts";
import type { DockerParts } from "./parts.ts";
import { createPortRelay } from "./port-forward/relay.ts";
import { inspectRunning, inspectRunningSandbox } from "./container/running.ts";

/** exec, attach and port-forward. The Docker Engine does not support Kubernetes' streaming protocols: `server` serves them in this process.
 *  Requests fail before there is an endpoint: not_found, or failed_precondition if the container is not running. */
export function dockerStreams(parts: DockerParts, server: StreamServer): Streams {
  const connectTo = createPortRelay(parts);
  return {
    async exec(request: ExecRequest, signal) {
      const { containerId, cmd: argv, tty, stdin, stdout, stderr } = request;
      const id = await createExec(parts, { containerId, argv, tty, stdin, stdout, stderr }, signal);
      return server.command(request, (streams, gone) => streamExec(parts, { id, tty }, streams, gone));
    },
    async attach(request: AttachRequest, signal) {
      await inspectRunning(parts, request.containerId, signal);
      return server.command(request, (streams, gone) => attach(parts, request.containerId, streams, gone));
    },
    async portForward({ podSandboxId, port }: PortForwardRequest, signal) {
      await inspectRunningSandbox(parts, podSandboxId, signal);
      return server.portForward(port, (wanted, gone) => connectTo(podSandboxId, wanted, gone));
    },
  };
}
