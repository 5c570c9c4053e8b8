import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Request } from "express";
import { CodedError } from "../../lib/errors.ts";
import type { Pod } from "../../objects.ts";
import { runtimeErrorText } from "../../pod/error-text.ts";
import { type Handler, sendText, streamingStatus } from "../responses.ts";
import { containerSpec, inContainer, inSandbox, placeholderText } from "../lookup.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { createForwardSlots, releaseDelayMs, waitForSlot } from "../../streams/forward-slots.ts";
import type { Upgrade } from "../../streams/upgrade.ts";
import { type StreamClient, serveCommand, serveForward } from "../client-streams.ts";
import { goQuote } from "../../lib/go-quote.ts";

/** A request that the kubelet refuses with a specific status. */
class StreamRefusedError extends Error {
  readonly status: number;
  constructor(status: number, text: string) {
    super(text);
    this.status = status;
  }
}

export interface StreamDeps extends KubeletServerDeps {
  /** The upgrade of a request; undefined for an ordinary request. */
  readonly upgradeOf: (request: IncomingMessage) => Upgrade | undefined;
}

/** A stream that the runtime has prepared. */
interface PreparedStream {
  serve(client: StreamClient): Promise<void>;
  /** Called when the stream has ended, or was not used. */
  release?(): void;
}

type PrepareStream = (deps: KubeletServerDeps, request: Request, signal: AbortSignal) => Promise<PreparedStream>;

/** /exec: a command in a running container. */
export const exec = streaming(async (deps, request, signal) => {
  const query = queryOf(request.originalUrl);
  const command = optionsOf(query);
  const { pod, name } = requestedPod(deps, request);
  const cmd = query.getAll("command");
  const start = (containerId: string) => deps.runtime.exec({ containerId, cmd, ...command }, signal);
  const endpoint = await inContainer(deps, pod, name, start, signal);
  if (!endpoint) throw new StreamRefusedError(500, `container not found (${JSON.stringify(name)})`);
  return { serve: (client) => serveCommand(client, endpoint, command) };
});

/** /attach: the main process of a running container; the container decides about the terminal. */
export const attach = streaming(async (deps, request, signal) => {
  const { stdin, stdout, stderr } = optionsOf(queryOf(request.originalUrl));
  const { pod, name, uid } = requestedPod(deps, request);
  const fullName = `${pod.metadata.name}_${pod.metadata.namespace}`;
  if (uid !== "" && uid !== pod.metadata.uid) throw new StreamRefusedError(500, `pod ${fullName} not found`);
  const spec = containerSpec(pod, name);
  const tty = spec?.tty ?? false;
  const command = { stdin, stdout, stderr: stderr && !tty, tty };
  const join = (containerId: string) => deps.runtime.attach({ containerId, ...command }, signal);
  const endpoint = spec && (await inContainer(deps, pod, name, join, signal));
  if (!endpoint) throw new StreamRefusedError(500, `container ${name} not found in pod ${fullName}`);
  return { serve: (client) => serveCommand(client, endpoint, command) };
});

/** /portForward: ports of a pod; concurrent connections are limited per node. */
export function portForward(deps: StreamDeps): Handler {
  const slots = createForwardSlots(deps.clock);
  return streaming(async ({ desired, status, runtime }, request, signal) => {
    const ports = forwardedPorts(request.headers, queryOf(request.originalUrl));
    if (ports.kind === "invalid") throw new StreamRefusedError(400, ports.text);
    const { pod, uid } = requestedPod({ desired, status }, request);
    if (uid !== "" && uid !== pod.metadata.uid) throw new StreamRefusedError(404, "pod not found");
    const port = [...ports.ports];
    // Without ports in the query, it is one connection that multiplexes others.
    const taken = slots.acquire(pod.metadata.uid, Math.max(1, port.length));
    if (taken.kind === "full") throw new CodedError("resource_exhausted", taken.text);
    const acquireSlot = (gone: AbortSignal) => waitForSlot(slots, pod.metadata.uid, deps.clock, gone);
    try {
      const forward = (podSandboxId: string) => runtime.portForward({ podSandboxId, port }, signal);
      const endpoint = await inSandbox(deps, pod, forward, signal);
      if (!endpoint)
        throw new StreamRefusedError(500, `pod not found ("${pod.metadata.name}_${pod.metadata.namespace}")`);
      const about = { ports: port, acquireSlot };
      return {
        serve: (client) => serveForward(client, endpoint, about),
        release: () => taken.slot.release(releaseDelayMs),
      };
    } catch (error) {
      taken.slot.release(0);
      throw error;
    }
  })(deps);
}

function optionsOf(query: URLSearchParams): { stdin: boolean; stdout: boolean; stderr: boolean; tty: boolean } {
  const options = streamOptions(query);
  if (!options) throw new StreamRefusedError(400, "you must specify at least 1 of stdin, stdout, stderr");
  return options;
}

function requestedPod(
  deps: Pick<KubeletServerDeps, "desired" | "status">,
  request: Request,
): { pod: Pod; name: string; uid: string } {
  const { namespace = "", pod: podName = "", container = "", uid = "" } = request.params as Record<string, string>;
  const pod = deps.desired.byName(namespace, podName);
  if (!pod) throw new StreamRefusedError(404, "pod does not exist");
  const placeholder = placeholderText(deps, pod);
  if (placeholder !== undefined) throw new StreamRefusedError(400, placeholder);
  return { pod, name: container, uid };
}

/** Creates a handler from a function that has the runtime prepare a stream: it returns the refusal in the kubelet's words, or serves the
 *  client. */
function streaming(prepare: PrepareStream): (deps: StreamDeps) => Handler {
  return (deps) => async (request, response, signal) => {
    let stream: PreparedStream;
    try {
      stream = await prepare(deps, request, signal);
    } catch (error) {
      if (error instanceof StreamRefusedError) return sendText(response, error.status, error.message);
      if (signal.aborted) return void response.destroy();
      const status = streamingStatus(error);
      if (status === 429) response.set("Retry-After", "60");
      deps.log.debug({ path: request.path, err: error }, "cannot open a streaming endpoint");
      return sendText(response, status, runtimeErrorText(error));
    }
    const upgrade = deps.upgradeOf(request);
    const { clock, log } = deps;
    try {
      if (upgrade) await stream.serve({ request, response, upgrade, signal, clock, log });
      else sendText(response, 500, "Upgrade request required\n");
    } finally {
      stream.release?.();
    }
  };
}

/** Streams requested by an exec or attach, from the kubelet's parameters input, output, error and tty; a terminal has no separate stderr.
 *  Undefined if none is requested. */
function streamOptions(
  query: URLSearchParams,
): { readonly stdin: boolean; readonly stdout: boolean; readonly stderr: boolean; readonly tty: boolean } | undefined {
  const wants = (name: string) => query.get(name) === "1";
  const tty = wants("tty");
  const options = { stdin: wants("input"), stdout: wants("output"), stderr: wants("error") && !tty, tty };
  return options.stdin || options.stdout || options.stderr ? options : undefined;
}

type ForwardedPorts =
  | { readonly kind: "ports"; readonly ports: readonly number[] }
  | { readonly kind: "invalid"; readonly text: string };

/** Maximum number of ports in one request: each has two of the 256 channels of the protocol. */
const maxPorts = 128;
const tunnelProtocol = "SPDY/3.1+portforward.k8s.io";

/** Ports in the query of a port-forward over WebSocket; over SPDY, including SPDY tunnelled through a WebSocket, each stream names its
 *  own. */
function forwardedPorts(headers: IncomingHttpHeaders, query: URLSearchParams): ForwardedPorts {
  const protocols = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  const ownChannels = headers.upgrade?.toLowerCase() === "websocket" && !protocols.includes(tunnelProtocol);
  if (!ownChannels) return { kind: "ports", ports: [] };
  const values = query.getAll("port");
  if (values.length === 0) return { kind: "invalid", text: 'query parameter "port" is required' };
  const ports: number[] = [];
  for (const value of values) {
    if (value === "") return { kind: "invalid", text: 'query parameter "port" cannot be empty' };
    for (const one of value.split(",", maxPorts + 1)) {
      const port = /^\d+$/.test(one) ? Number(one) : NaN;
      if (!(port <= 65535)) {
        const why = `parsing ${goQuote(one)}: ${Number.isNaN(port) ? "invalid syntax" : "value out of range"}`;
        return { kind: "invalid", text: `unable to parse ${goQuote(value)} as a port: strconv.ParseUint: ${why}` };
      }
      if (port < 1) return { kind: "invalid", text: `port ${goQuote(value)} must be > 0` };
      ports.push(port);
      if (ports.length > maxPorts)
        return { kind: "invalid", text: `query parameter "port" names more than ${maxPorts} ports: request fewer` };
    }
  }
  return { kind: "ports", ports };
}
