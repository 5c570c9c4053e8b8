import { PodSandboxFilter, type StatusResponse } from "../../../src/gen/cri.ts";
import { CodedError, hasCode, messageOf } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import type { Host } from "../../../src/seams/host.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";

/** Protocol of a runtime's socket on the target. */
export type RuntimeProtocol = "cri" | "docker";

/** Well-known sockets of runtimes, in order of preference. Docker comes with a containerd whose CRI plugin is often disabled or
 *  has no pod network, so the existence of a socket is not enough: the runtime has to answer and should have a pod network. */
export const wellKnownSockets: readonly string[] = [
  "/run/containerd/containerd.sock",
  "/run/k3s/containerd/containerd.sock",
  "/run/crio/crio.sock",
  "/var/run/docker.sock",
];

export interface DetectDeps {
  /** Name of the node; a runtime that has pods of this node is preferred. */
  readonly nodeName: string;
  readonly host: Pick<Host, "fs" | "dial">;
  /** Creates the runtime for a socket; it connects on first use. */
  readonly createRuntime: (socket: string, protocol: RuntimeProtocol) => Runtime;
  /** Resolves if the target is reachable. @throws CodedError unavailable if not. */
  readonly checkReachable: (signal: AbortSignal) => Promise<unknown>;
  readonly log: Logger;
}

/** A detected runtime, and the path of its socket on the target. */
export interface DetectedRuntime {
  readonly runtime: Runtime;
  readonly socket: string;
}

/** Detects the target's runtime: the configured socket, or among the well-known sockets that answer, the first with pods of the node, else
 *  the first with a pod network, else the first.
 *  @throws CodedError unavailable when the target is unreachable; failed_precondition, one sentence with the sockets
 *  tried, when no runtime answers. */
export async function detectRuntime(
  deps: DetectDeps,
  configured: "auto" | { readonly socket: string },
  signal: AbortSignal,
): Promise<DetectedRuntime> {
  const sockets = configured === "auto" ? wellKnownSockets : [configured.socket];
  const probes = await Promise.allSettled(sockets.map((socket) => probeSocket(deps, socket, signal)));
  await using unwanted = new AsyncDisposableStack();
  const found = probes.flatMap((look) => (look.status === "fulfilled" ? [look.value] : []));
  const answering = found.filter((one) => "runtime" in one).map((one) => unwanted.adopt(one, dispose));
  for (const look of probes) if (look.status === "rejected") throw look.reason;
  const chosen = answering.length > 1 ? await choosePreferred(deps.nodeName, answering, signal) : answering[0];
  if (chosen) {
    const { socket, runtime, version } = chosen;
    const others = answering.filter((one) => one !== chosen);
    unwanted.move();
    await Promise.all(others.map(dispose));
    deps.log.info(
      { socket, runtime: version, others: others.map((one) => one.socket) },
      "detected the target's runtime",
    );
    return { runtime, socket };
  }
  await deps.checkReachable(signal);
  throw new CodedError(
    "failed_precondition",
    `no container runtime answers on the target, tried ${found.map(triedText).join(", ")}: start containerd, CRI-O or Docker there, or set its socket in providerConfig.runtime.`,
  );
}

interface AnsweringRuntime extends DetectedRuntime {
  readonly version: string;
}

/** A socket without a runtime that answers, and why. */
interface FailedSocket {
  readonly socket: string;
  readonly why: string;
}

function triedText(one: AnsweringRuntime | FailedSocket): string {
  return "why" in one ? `${one.socket} (${one.why})` : one.socket;
}

/** Checks whether a runtime answers at a socket. @throws errors of an unreachable target. */
async function probeSocket(
  { host, createRuntime }: DetectDeps,
  socket: string,
  signal: AbortSignal,
): Promise<AnsweringRuntime | FailedSocket> {
  let runtime: Runtime | undefined;
  try {
    const { kind } = await host.fs.stat(socket, signal);
    if (kind !== "socket") return { socket, why: "is not a socket" };
    // A killed runtime leaves its socket file behind.
    runtime = createRuntime(socket, await protocolOf(host, socket, signal));
    const { runtimeName, runtimeVersion } = await runtime.version(signal);
    return { runtime, socket, version: `${runtimeName} ${runtimeVersion}` };
  } catch (error) {
    await runtime?.[Symbol.asyncDispose]();
    return { socket, why: failureText(error) };
  }
}

async function dispose({ runtime }: AnsweringRuntime): Promise<void> {
  await runtime[Symbol.asyncDispose]();
}

/** Chooses among several runtimes. @throws the error of a runtime that cannot list its pods, because the node's pods may be on
 *  that runtime. */
async function choosePreferred(
  nodeName: string,
  answering: readonly AnsweringRuntime[],
  signal: AbortSignal,
): Promise<AnsweringRuntime | undefined> {
  const own = PodSandboxFilter.fromPartial({ labelSelector: { [nodeLabel]: nodeName } });
  const podsByRuntime = await Promise.all(answering.map(({ runtime }) => runtime.listPodSandbox(own, signal)));
  const holder = answering.find((_, at) => (podsByRuntime[at]?.length ?? 0) > 0);
  if (holder) return holder;
  const statuses = await Promise.all(answering.map(({ runtime }) => runtime.status(signal)));
  const hasNetwork = ({ status }: StatusResponse) =>
    status?.conditions.some((condition) => condition.type === "NetworkReady" && condition.status) ?? false;
  return answering.find((_, at) => statuses[at] && hasNetwork(statuses[at])) ?? answering[0];
}

/** Returns the reason why a socket cannot be used. @throws errors of an unreachable target, which say nothing about its
 *  sockets. */
function failureText(error: unknown): string {
  if (hasCode(error, "cancelled", "deadline_exceeded")) throw error;
  return hasCode(error, "not_found") ? "does not exist" : messageOf(error);
}

/** Length of `HTTP/1.1 200`. */
const statusLength = 12;

/** Detects the protocol of a socket: Docker and Podman answer this request over HTTP/1.1. containerd does not speak it; CRI-O serves its own
 *  pages beside gRPC, and answers 404.
 *  @see https://github.com/cri-o/cri-o/blob/c87b11115f8c7389d24963382d6db3864d42f33c/server/inspect.go */
async function protocolOf(host: Pick<Host, "dial">, socket: string, signal: AbortSignal): Promise<RuntimeProtocol> {
  const connection = await host.dial({ unix: socket }, signal);
  try {
    connection.write("GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n");
    const { promise, resolve } = Promise.withResolvers<RuntimeProtocol>();
    let response = "";
    const decide = () => resolve(/^HTTP\/1\.\d (?!404)/.test(response) ? "docker" : "cri");
    connection.on("data", (bytes: Buffer) => {
      response += bytes.toString("latin1");
      if (response.length >= statusLength || !"HTTP/1.".startsWith(response.slice(0, 7))) decide();
    });
    connection.on("error", () => resolve("cri"));
    for (const event of ["end", "close"]) connection.once(event, decide);
    signal.addEventListener("abort", () => resolve("cri"), { once: true });
    return await promise;
  } finally {
    connection.destroy();
  }
}
