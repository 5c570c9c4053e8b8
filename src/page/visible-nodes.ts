import type { IncomingMessage } from "node:http";
import { hasCode, messageOf } from "../lib/errors.ts";
import { authenticate } from "../server/authentication.ts";
import { type AuthorizationResult, authorize, tooManyRequests } from "../server/authorization.ts";
import type { PeerCertificates } from "../server/peer-certificates.ts";
import type { RefusedRequest } from "./access.ts";
import type { ReadGate } from "../report/reported-node.ts";
import type { Reports } from "../report/notes.ts";

/** Areas of the kubelet API that the page shows: a caller needs `get` on nodes/pods, nodes/stats and nodes/log. */
const areas = ["pods", "stats", "logs"] as const;

/** Certificates of a connection on which no client certificate is accepted. */
export const noCertificates: Pick<PeerCertificates, "identify"> = { identify: () => ({ kind: "none" }) };

/** The node whose certificate and client CA the page uses for TLS: the first that has a certificate. */
export function tlsGate({ nodes }: Pick<Reports, "nodes">): ReadGate | undefined {
  return nodes.map((node) => node.introspection()?.gate).find((gate) => gate?.certificate.current() !== undefined);
}

/** Returns the nodes that a caller may see, decided by the authentication and authorization of each node's kubelet API. A client
 *  certificate is valid only for nodes that trust the CA against which TLS has verified it. Nodes with the same CA belong to one cluster:
 *  if the first of them does not authenticate the caller, the others are not tried, as each would send the token to the same API server.
 *  @param ca that CA, PEM.
 *  @returns the reason of the refusal if the caller may see none. */
export async function visibleNodes(
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
