import { hostIn } from "../../src/lib/url-text.ts";
import type { Duplex } from "node:stream";
import { type TLSSocket, connect as startTls } from "node:tls";
import { RuntimeServiceService as runtimeService } from "../../src/gen/cri.ts";
import { CodedError, abortError } from "../../src/lib/errors.ts";
import type { Host } from "../../src/seams/host.ts";
import type { StreamEndpoint, Streams } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";

/** exec, attach and port-forward over CRI: the runtime returns a URL of its own streaming server, which is dialled from the target because
 *  such URLs use the target's loopback. */
export function criStreams(runtime: GrpcChannel, host: Pick<Host, "dial">): Streams {
  return {
    exec: async (request, signal) =>
      parseStreamUrl((await runtime.call(runtimeService.exec, request, signal)).url, host),
    attach: async (request, signal) =>
      parseStreamUrl((await runtime.call(runtimeService.attach, request, signal)).url, host),
    portForward: async (request, signal) =>
      parseStreamUrl((await runtime.call(runtimeService.portForward, request, signal)).url, host),
  };
}

/** Parses a streaming URL. @param text an http or https URL; an unspecified address (`[::]`, `0.0.0.0`) means loopback.
 *  @throws CodedError unknown for any other URL. */
export function parseStreamUrl(text: string, host: Pick<Host, "dial">): StreamEndpoint {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:")
    throw new CodedError("unknown", `the runtime returned a streaming URL that is neither http nor https: ${text}`);
  const tls = url.protocol === "https:";
  const address = { host: reachable(hostIn(url)), port: Number(url.port || (tls ? 443 : 80)) };
  return {
    path: url.pathname + url.search,
    host: url.host,
    async dial(signal) {
      const connection = await host.dial(address, signal);
      return tls ? secure(connection, signal) : connection;
    },
  };
}

function reachable(hostname: string): string {
  if (hostname === "::") return "::1";
  return hostname === "0.0.0.0" ? "127.0.0.1" : hostname;
}

/** Adds TLS without verification, as the kubelet does for a runtime on its own machine: the certificate is self-signed, and the
 *  single-use token in the path, obtained over the runtime's socket, authorizes the request. */
function secure(connection: Duplex, signal: AbortSignal): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = startTls({ socket: connection, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] });
    const settle = () => {
      signal.removeEventListener("abort", onAbort);
      socket.off("error", onError);
    };
    const fail = (error: CodedError) => {
      settle();
      socket.on("error", () => {});
      socket.destroy();
      connection.destroy();
      reject(error);
    };
    const onError = (cause: Error) =>
      fail(new CodedError("unavailable", `TLS with the runtime's streaming server: ${cause.message}`, { cause }));
    const onAbort = () => fail(abortError(signal));
    socket.once("error", onError);
    socket.once("secureConnect", () => {
      settle();
      resolve(socket);
    });
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
