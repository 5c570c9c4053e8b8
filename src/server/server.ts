import { type IncomingMessage, ServerResponse } from "node:http";
import { type Server, createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { TLSSocket } from "node:tls";
import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { guardResponses } from "../lib/guard-responses.ts";
import { messageOf } from "../lib/errors.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { KubeletApi } from "./app.ts";
import type { Upgrade } from "../streams/upgrade.ts";
import { createListening, requestTimes, serveHttps } from "./listen.ts";
import { type PeerCertificates, createPeerCertificates } from "./peer-certificates.ts";
import type { KubeletServerDeps } from "./ports.ts";
import { tlsOptions } from "./tls.ts";

export interface NodeServerDeps extends KubeletServerDeps {
  readonly kubeletApi: KubeletApi;
}

export interface KubeletServer extends Runnable {
  ready(signal: AbortSignal): Promise<void>;
  /** Listen address; undefined while the server is not listening. */
  address(): AddressInfo | undefined;
}

/** Idle timeout of connections, milliseconds, and maximum size of headers, bytes; the kubelet's values. */
const idleMs = 90_000;
const maxHeaderBytes = 1 << 20;
/** Header limits for clients without a client certificate of the cluster: long commands arrive through the API server. */
const unauthenticatedHeaderLimits = { maxHeaderSize: 64 << 10, maxHeadersCount: 100 };
/** Header limits for all other clients. The number of headers is the default of Node.js. */
const authenticatedHeaderLimits = { maxHeaderSize: maxHeaderBytes, maxHeadersCount: 2000 };
export const tlsHandshakeMs = 10_000;
/** Time for a client to close after a refused upgrade, milliseconds. */
const refusedCloseTimeoutMs = 1000;
/** Idle time before the first TCP keep-alive probe, milliseconds. */
const keepAliveMs = 30_000;

/** The kubelet API over HTTPS. `run` throws a CodedError if it cannot listen. @throws CodedError invalid_argument for
 *  unsupported TLS settings.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
export function createKubeletServer(deps: NodeServerDeps): KubeletServer {
  const { config, clock, log } = deps;
  const tls = tlsOptions(config);
  const listening = createListening("kubelet API", log);
  return {
    name: "kubelet-api",
    ready: listening.ready,
    address: listening.address,
    async run(signal) {
      const certificates = createPeerCertificates(() => deps.clientCA.current() !== undefined, clock, tlsHandshakeMs);
      const server = guardResponses(
        createServer({
          ...tlsCredentials(deps),
          ...tls,
          requestCert: true,
          rejectUnauthorized: false,
          handshakeTimeout: tlsHandshakeMs,
          allowHalfOpen: true,
          keepAlive: true,
          keepAliveInitialDelay: keepAliveMs,
          keepAliveTimeout: idleMs,
          ...requestTimes,
        }),
      );
      serveRequests(server, deps, certificates, signal);
      const renew = () => {
        server.setSecureContext({ ...tlsCredentials(deps), ...tls });
        certificates.renew();
        server.closeIdleConnections();
      };
      const unsubscribe = [deps.certificate.onChange(renew), deps.clientCA.onChange(renew)];
      try {
        const at = { address: config.address, port: config.port, addressField: "address", portField: "port" };
        await serveHttps({ server, at, unauthenticated: deps.unauthenticated, listening, clock, log }, signal);
      } finally {
        for (const stop of unsubscribe) stop();
      }
    },
  };
}

/** Current certificates; without an own certificate, no handshake succeeds. The list of CAs is empty, not missing: a missing one would
 *  mean all public CAs. */
export function tlsCredentials({ certificate, clientCA }: Pick<KubeletServerDeps, "certificate" | "clientCA">): {
  cert?: string;
  key?: string;
  ca: string[];
} {
  const own = certificate.current();
  const ca = clientCA.current();
  return { ...(own && { cert: own.certificate, key: own.key }), ca: ca === undefined ? [] : [ca] };
}

function serveRequests(
  server: Server,
  deps: NodeServerDeps,
  certificates: PeerCertificates,
  stopped: AbortSignal,
): void {
  const upgrades = new WeakMap<IncomingMessage, Upgrade>();
  const upgradeOf = (request: IncomingMessage) => upgrades.get(request);
  const app = deps.kubeletApi.forNode({ ...deps, certificates, stopped, upgradeOf });
  server.prependListener("secureConnection", (socket) => {
    certificates.accept(socket);
    const isAuthenticated = certificates.identify(socket).kind === "known";
    if (isAuthenticated) deps.unauthenticated.authenticated(socket);
    // Node reads the header limits from the server for each new connection.
    Object.assign(server, isAuthenticated ? authenticatedHeaderLimits : unauthenticatedHeaderLimits);
  });
  server.on("tlsClientError", (error) => deps.log.debug({ why: messageOf(error) }, "TLS handshake failed"));
  server.on("clientError", (error, socket) => rejectMalformedRequest(error, socket, deps.clock));
  server.on("request", app);
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (!(socket instanceof TLSSocket)) return void socket.destroy();
    // An upgrade request passes the same handlers as any other; only its result differs.
    socket.on("error", () => socket.destroy());
    const response = new ServerResponse(request);
    response.on("error", () => undefined);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    response.once("finish", () => {
      response.detachSocket(socket);
      // Keeps reading, so that the client's data does not cause a reset that loses the response.
      socket.resume();
      socket.end();
      const timer = deps.clock.after(refusedCloseTimeoutMs, () => socket.destroy());
      socket.once("close", () => timer.cancel());
    });
    upgrades.set(request, { socket, head });
    app(request, response);
  });
}

/** Responds to an invalid or incomplete request as Node would; Node itself does not wait until TLS has sent the response. */
function rejectMalformedRequest(error: NodeJS.ErrnoException, socket: Duplex, clock: Clock): void {
  socket.on("error", () => socket.destroy());
  if (!socket.writable || error.code === "ECONNRESET") return void socket.destroy();
  const answer = malformedRequestStatus.get(error.code ?? "") ?? "400 Bad Request";
  socket.end(`HTTP/1.1 ${answer}\r\nConnection: close\r\n\r\n`);
  const timer = clock.after(refusedCloseTimeoutMs, () => socket.destroy());
  socket.once("close", () => timer.cancel());
}

const malformedRequestStatus: ReadonlyMap<string, string> = new Map([
  ["HPE_HEADER_OVERFLOW", "431 Request Header Fields Too Large"],
  ["ERR_HTTP_REQUEST_TIMEOUT", "408 Request Timeout"],
]);
