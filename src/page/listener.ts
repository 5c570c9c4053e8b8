import { type IncomingMessage, type RequestListener, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Server } from "node:net";
import type { TLSSocket } from "node:tls";
import { messageOf, hasCode } from "../lib/errors.ts";
import { guardResponses } from "../lib/guard-responses.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { requestTimes } from "../server/listen.ts";
import { createPeerCertificates, type PeerCertificates } from "../server/peer-certificates.ts";
import { tlsCredentials, tlsHandshakeMs } from "../server/server.ts";
import { tlsOptions } from "../server/tls.ts";
import { type RefusedRequest, type Viewer, loopbackRefusal } from "./access.ts";
import type { Reports } from "../report/notes.ts";
import { authenticate } from "../server/authentication.ts";
import { type AuthorizationResult, authorize, tooManyRequests } from "../server/authorization.ts";
import type { ReadGate } from "../report/reported-node.ts";

/** Decides what a caller may see, or why the request is refused. */
export type AuthorizeViewer = (request: IncomingMessage, signal: AbortSignal) => Promise<Viewer | RefusedRequest>;

export interface PageListener {
  readonly server: Server;
  /** Ends the listener's subscriptions to changes of certificates and CAs. */
  readonly end: () => void;
}

export interface ListenerDeps extends ClockAndLog {
  readonly reports: Pick<Reports, "nodes" | "onNodesChange">;
}

/** A caller on loopback. */
const seesAll: Viewer = { maySee: () => true, maySeeFleet: true };

/** Plain HTTP for loopback: any caller sees all nodes, and the machines of other replicas. */
export function plainListener(answer: (admit: AuthorizeViewer) => RequestListener): PageListener {
  const admit: AuthorizeViewer = async ({ headers }) => loopbackRefusal(headers) ?? seesAll;
  return { server: guardResponses(createServer(requestTimes, answer(admit))), end: () => undefined };
}

/** TLS with the certificate and client CA of the first node that has them; callers see the nodes whose kubelet API authorizes them.
 *  They do not see machines of other replicas: this process has no kubelet API of theirs that could authorize a caller. Without a certificate no handshake succeeds. */
export function tlsListener(
  { reports, clock, log }: ListenerDeps,
  answer: (admit: AuthorizeViewer) => RequestListener,
): PageListener {
  let context = tlsContext(reports);
  const certificates = createPeerCertificates(() => context.ca.length > 0, clock, tlsHandshakeMs);
  const admit: AuthorizeViewer = async (request, signal) => {
    // A connection that may have been accepted with a previous CA does not authenticate its client.
    const stale = certificates.isStale(request.socket);
    const known = {
      reports,
      certificates: stale ? { ...certificates, ...noCertificates } : certificates,
      ca: context.ca[0],
    };
    const seen = await visibleNodes(known, request, signal);
    return "status" in seen ? seen : { maySee: (node) => seen.has(node), maySeeFleet: false };
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
function watchGates({ nodes, onNodesChange }: ListenerDeps["reports"], changed: () => void): () => void {
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
  let followed: readonly (() => void)[] = [];
  const stopFollowing = () => {
    for (const each of followed) each();
  };
  const followAll = () => {
    stopFollowing();
    followed = nodes.map((node) => node.onRunningChange(follow));
    follow();
  };
  const stopListening = onNodesChange(followAll);
  followAll();
  return () => {
    stopListening();
    stopFollowing();
    stop();
  };
}

/** Areas of the kubelet API that the page shows: a caller needs `get` on nodes/pods, nodes/stats and nodes/log. */
const areas = ["pods", "stats", "logs"] as const;

/** Certificates of a connection on which no client certificate is accepted. */
const noCertificates: Pick<PeerCertificates, "identify"> = { identify: () => ({ kind: "none" }) };

/** The node whose certificate and client CA the page uses for TLS: the first that has a certificate. */
function tlsGate({ nodes }: Pick<Reports, "nodes">): ReadGate | undefined {
  return nodes.map((node) => node.introspection()?.gate).find((gate) => gate?.certificate.current() !== undefined);
}

/** Returns the nodes that a caller may see, decided by the authentication and authorization of each node's kubelet API. A client
 *  certificate is valid only for nodes that trust the CA against which TLS has verified it. Nodes with the same CA belong to one cluster:
 *  if the first of them does not authenticate the caller, the others are not tried, as each would send the token to the same API server.
 *  @param ca that CA, PEM.
 *  @returns the reason of the refusal if the caller may see none. */
async function visibleNodes(
  {
    reports,
    certificates,
    ca,
  }: {
    readonly reports: Pick<Reports, "nodes">;
    readonly certificates: PeerCertificates;
    readonly ca: string | undefined;
  },
  request: IncomingMessage,
  signal: AbortSignal,
): Promise<ReadonlySet<string> | RefusedRequest> {
  const judgeOne = async ({ name, gate }: GatedNode) => {
    const sameCA = ca !== undefined && gate.clientCA.current() === ca;
    const known = sameCA ? certificates : { ...certificates, ...noCertificates };
    return { name, verdict: await reviewCaller(gate, known, request, signal) };
  };
  const judgeCluster = async ([first, ...others]: readonly GatedNode[]) => {
    if (!first) return [];
    const verdict = await judgeOne(first);
    return isUnauthenticated(verdict.verdict) ? [verdict] : [verdict, ...(await Promise.all(others.map(judgeOne)))];
  };
  const gates = reports.nodes.flatMap(({ name, introspection }) => {
    const gate = introspection()?.gate;
    return gate ? [{ name, gate }] : [];
  });
  const clusters = Object.values(Object.groupBy(gates, ({ name, gate }) => gate.clientCA.current() ?? name));
  const judged = (await Promise.all(clusters.map((nodes = []) => judgeCluster(nodes)))).flat();
  const seen = judged.filter(({ verdict }) => verdict.kind === "allowed").map(({ name }) => name);
  if (seen.length > 0) return new Set(seen);
  const refusals = judged.flatMap(({ verdict }) => (verdict.kind === "refused" ? [verdict] : []));
  return refusals.find(({ status }) => status !== 401) ?? unauthorized;
}

interface GatedNode {
  readonly name: string;
  readonly gate: ReadGate;
}

/** True if the caller is unauthenticated, or could not be reviewed because of rate limits. */
function isUnauthenticated(verdict: AuthorizationResult): boolean {
  return verdict.kind === "refused" && (verdict.status === 401 || verdict.status === tooManyRequests.status);
}

const unauthorized = { kind: "refused", status: 401, text: "Unauthorized\n" } as const;

async function reviewCaller(
  { config, authenticator, authorizer }: ReadGate,
  certificates: PeerCertificates,
  request: IncomingMessage,
  signal: AbortSignal,
): Promise<AuthorizationResult> {
  try {
    const asking = { anonymous: config.anonymous, certificates, ...(authenticator && { authenticator }) };
    const user = await authenticate(asking, request, signal);
    if (!user) return unauthorized;
    for (const area of areas) {
      const verdict = await authorize(authorizer, user, { method: "GET", segments: [area] }, signal);
      if (verdict.kind === "refused") return verdict;
    }
    return { kind: "allowed" };
  } catch (error) {
    return hasCode(error, "resource_exhausted") ? tooManyRequests : { ...unauthorized, why: messageOf(error) };
  }
}
