import { CodedError, hasCode, messageOf } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import type { Host } from "../../../src/seams/host.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";

/** Protocol of a socket on the target. */
export type Protocol = "cri" | "docker";

/** Sockets of runtimes, in the order of attempts. Docker comes with a containerd whose CRI is often disabled: the first
 *  that answers counts, not the first that exists. */
export const knownSockets: readonly string[] = [
  "/run/containerd/containerd.sock",
  "/run/k3s/containerd/containerd.sock",
  "/run/crio/crio.sock",
  "/var/run/docker.sock",
];

export interface FindDeps {
  readonly host: Pick<Host, "fs" | "dial">;
  /** Creates the runtime for a socket; it connects on first use. */
  readonly make: (socket: string, protocol: Protocol) => Promise<Runtime>;
  /** Resolves while the target is reachable. @throws CodedError unavailable when it is not. */
  readonly reach: (signal: AbortSignal) => Promise<unknown>;
  readonly log: Logger;
}

/** A runtime, and the path of its socket on the target. */
export interface FoundRuntime {
  readonly runtime: Runtime;
  readonly socket: string;
}

/** Finds the target's runtime: the configured socket, or the first known one that answers.
 *  @throws CodedError unavailable when the target is unreachable; failed_precondition, one sentence with the sockets
 *  tried, when no runtime answers. */
export async function findRuntime(
  { host, make, reach, log }: FindDeps,
  wanted: "auto" | { readonly socket: string },
  signal: AbortSignal,
): Promise<FoundRuntime> {
  const tried: string[] = [];
  for (const socket of wanted === "auto" ? knownSockets : [wanted.socket]) {
    const refused = await host.fs.stat(socket, signal).then(
      ({ kind }) => (kind === "socket" ? undefined : "is not a socket"),
      (error: unknown) => reasonOf(error),
    );
    if (refused !== undefined) {
      tried.push(`${socket} (${refused})`);
      continue;
    }
    let runtime: Runtime | undefined;
    try {
      // A killed runtime leaves its socket behind.
      runtime = await make(socket, await protocolOf(host, socket, signal));
      const { runtimeName, runtimeVersion } = await runtime.version(signal);
      log.info({ socket, runtime: `${runtimeName} ${runtimeVersion}` }, "found the target's runtime");
      return { runtime, socket };
    } catch (error) {
      await runtime?.[Symbol.asyncDispose]();
      tried.push(`${socket} (${reasonOf(error)})`);
    }
  }
  await reach(signal);
  throw new CodedError(
    "failed_precondition",
    `no container runtime answers on the target, tried ${tried.join(", ")}: start containerd, CRI-O or Docker there, or name its socket in providerConfig.runtime.`,
  );
}

/** @throws errors of an unreachable target: they tell nothing about its sockets. */
function reasonOf(error: unknown): string {
  if (hasCode(error, "cancelled", "deadline_exceeded")) throw error;
  return hasCode(error, "not_found") ? "does not exist" : messageOf(error);
}

/** Docker answers with HTTP/1.1; gRPC speaks HTTP/2 only. */
async function protocolOf(host: Pick<Host, "dial">, socket: string, signal: AbortSignal): Promise<Protocol> {
  const connection = await host.dial({ unix: socket }, signal);
  try {
    connection.write("GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n");
    const { promise, resolve } = Promise.withResolvers<Protocol>();
    connection.once("data", (bytes: Buffer) =>
      resolve(bytes.toString("latin1").startsWith("HTTP/1.") ? "docker" : "cri"),
    );
    for (const event of ["end", "close", "error"]) connection.once(event, () => resolve("cri"));
    signal.addEventListener("abort", () => resolve("cri"), { once: true });
    return await promise;
  } finally {
    connection.destroy();
  }
}
