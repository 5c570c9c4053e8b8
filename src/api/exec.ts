import { text } from "node:stream/consumers";
import { WebSocket } from "ws";
import { CodedError } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import { apiError } from "./api-error.ts";
import type { Credentials } from "./credentials.ts";
import { unreachable } from "./requests.ts";

/** A command to run in a container. */
export interface ContainerCommand {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
  readonly argv: readonly string[];
}

/** Result of a command, from the Status at the end of an exec. */
export interface ExecResult {
  readonly status: "Success" | "Failure";
  /** NonZeroExitCode for a command that ran and failed. */
  readonly reason?: string;
  readonly message?: string;
}

const protocol = "v5.channel.k8s.io";
/** The protocol's channel for the Status. */
const statusChannel = 3;

/** Runs a command in a container through the API server, as kubectl exec does. Its output is discarded.
 *  @throws ApiError if the API server or the kubelet API refuses; CodedError unavailable if the connection ends before the command,
 *  unimplemented for a server behind a proxy.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets */
export async function execInContainer(
  { server, proxy, tls, headers }: Omit<Credentials, "generation">,
  { namespace, pod, container, argv }: ContainerCommand,
  signal: AbortSignal,
): Promise<ExecResult> {
  if (proxy !== undefined) throw new CodedError("unimplemented", "exec through a proxy is not supported");
  const url = new URL(`/api/v1/namespaces/${namespace}/pods/${pod}/exec`, server);
  const query = [
    ["container", container],
    ["stdout", "true"],
    ["stderr", "true"],
    ...argv.map((word) => ["command", word]),
  ];
  url.search = new URLSearchParams(query).toString();
  const ended = Promise.withResolvers<ExecResult>();
  const socket = new WebSocket(url, [protocol], { ...tls, headers, perMessageDeflate: false });
  socket.on("message", (data: Buffer) => {
    if (data[0] !== statusChannel) return;
    Promise.try(() => JSON.parse(data.subarray(1).toString()) as ExecResult).then(ended.resolve, ended.reject);
  });
  socket.once("unexpected-response", (_request, answer) => {
    text(answer).then((body) => ended.reject(apiError(answer.statusCode ?? 0, body)), ended.reject);
  });
  // Also emitted for a connection that is terminated before it is established.
  socket.on("error", (error) => ended.reject(unreachable(server, error, signal)));
  socket.once("close", () =>
    ended.reject(new CodedError("unavailable", `${server.origin}: the connection ended before the command did`)),
  );
  try {
    return await untilAborted(ended.promise, signal);
  } finally {
    socket.terminate();
  }
}
