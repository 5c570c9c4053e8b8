import { type IncomingMessage, type RequestListener, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Server } from "node:net";
import type { TLSSocket } from "node:tls";
import { messageOf } from "../lib/errors.ts";
import { guardResponses } from "../lib/guard-responses.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { requestTimes } from "../server/listen.ts";
import { createPeerCertificates } from "../server/peer-certificates.ts";
import { tlsCredentials, tlsHandshakeMs } from "../server/server.ts";
import { tlsOptions } from "../server/tls.ts";
import { type RefusedRequest, loopbackRefusal } from "./access.ts";
import type { Reports } from "../report/notes.ts";
import { tlsGate, noCertificates, visibleNodes } from "./visible-nodes.ts";

/** Decides which nodes a caller may see, or why the request is refused. */
export type AuthorizeViewer = (
  request: IncomingMessage,
  signal: AbortSignal,
) => Promise<((node: string) => boolean) | RefusedRequest>;

export interface PageListener {
  readonly server: Server;
  /** Removes the listener's subscriptions. */
  readonly end: () => void;
}

export interface ListenerDeps extends ClockAndLog {
  readonly reports: Pick<Reports, "nodes">;
}

/** Plain HTTP for loopback: any caller sees all nodes. */
export function plainListener(answer: (admit: AuthorizeViewer) => RequestListener): PageListener {
  const admit: AuthorizeViewer = async ({ headers }) => loopbackRefusal(headers) ?? (() => true);
  return { server: guardResponses(createServer(requestTimes, answer(admit))), end: () => undefined };
}

/** TLS with the certificate and client CA of the first node that has them; callers see the nodes whose kubelet API authorizes them.
 *  Without a certificate no handshake succeeds. */
export function tlsListener(
  { reports, clock, log }: ListenerDeps,
  answer: (admit: AuthorizeViewer) => RequestListener,
): PageListener {
  let context = tlsContext(reports);
  const certificates = createPeerCertificates(() => context.ca.length > 0, clock, tlsHandshakeMs);
  const admit: AuthorizeViewer = async (request, signal) => {
    // A connection that may have been accepted under an older CA identifies nobody.
    const stale = certificates.isStale(request.socket);
    const known = {
      reports,
      certificates: stale ? { ...certificates, ...noCertificates } : certificates,
      ca: context.ca[0],
    };
    const seen = await visibleNodes(known, request, signal);
    return "status" in seen ? seen : (node) => seen.has(node);
  };
  const options = { requestCert: true, rejectUnauthorized: false, handshakeTimeout: tlsHandshakeMs, ...requestTimes };
  const server = guardResponses(createTlsServer({ ...context, ...options }, answer(admit)));
  server.prependListener("secureConnection", (socket: TLSSocket) => certificates.accept(socket));
  server.on("error", (error) => log.debug({ why: messageOf(error) }, "page server failed"));
  server.on("tlsClientError", (error) => log.debug({ why: messageOf(error) }, "TLS handshake failed"));
  const end = watchGates(reports, () => {
    const now = tlsContext(reports);
    if (JSON.stringify(now) === JSON.stringify(context)) return;
    context = now;
    server.setSecureContext(now);
    certificates.renew();
    server.closeIdleConnections();
  });
  return { server, end };
}

function tlsContext(
  reports: ListenerDeps["reports"],
): ReturnType<typeof tlsCredentials> & Partial<ReturnType<typeof tlsOptions>> {
  const lead = tlsGate(reports);
  return lead ? { ...tlsCredentials(lead), ...tlsOptions(lead.config) } : { ca: [] };
}

/** Calls back when the certificate or CA of a node may have changed. @returns removes the listeners. */
function watchGates({ nodes }: ListenerDeps["reports"], changed: () => void): () => void {
  let forget: readonly (() => void)[] = [];
  const stop = () => {
    for (const each of forget) each();
  };
  const follow = () => {
    stop();
    const gates = nodes.flatMap((node) => node.introspection()?.gate ?? []);
    forget = gates.flatMap(({ certificate, clientCA }) => [certificate.onChange(changed), clientCA.onChange(changed)]);
    changed();
  };
  const stopFollowing = nodes.map((node) => node.onRunningChange(follow));
  follow();
  return () => {
    for (const each of stopFollowing) each();
    stop();
  };
}
