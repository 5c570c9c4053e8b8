import type { IncomingMessage } from "node:http";
import { hasCode, messageOf } from "../lib/errors.ts";
import { authenticate } from "../server/authentication.ts";
import { type Verdict, authorize, tooMany } from "../server/authorization.ts";
import type { PeerCertificates } from "../server/peer-certificates.ts";
import type { Refused } from "./access.ts";
import type { ReadGate } from "../report/node.ts";
import type { Reports } from "../report/notes.ts";

/** Parts of the kubelet API whose content the page shows: a caller needs `get` on nodes/pods, nodes/stats and nodes/log. */
const areas = ["pods", "stats", "logs"] as const;

/** No connection presents a certificate that counts. */
export const noCertificates: Pick<PeerCertificates, "identify"> = { identify: () => ({ is: "none" }) };

/** The node whose certificate and client CA the page uses where it is served over TLS: the first one that has them. */
export function leadOf({ nodes }: Pick<Reports, "nodes">): ReadGate | undefined {
  return nodes.map((node) => node.work()?.gate).find((gate) => gate?.certificate.current() !== undefined);
}

/** The nodes that a caller may see: of each node, its own kubelet API's authentication and authorization decide. A client certificate
 *  counts only for nodes that trust the CA by which TLS has verified it. Nodes that trust the same CA are of one cluster: a caller whom the
 *  first of them does not know is not asked about by the others, for each of them would send the token to the same API server.
 *  @param ca that CA, PEM.
 *  @returns the reason of the refusal if there is none. */
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
): Promise<ReadonlySet<string> | Refused> {
  const judgeOne = async ({ name, gate }: Judged) => {
    const sameCA = ca !== undefined && gate.clientCA.current() === ca;
    const known = sameCA ? certificates : { ...certificates, ...noCertificates };
    return { name, verdict: await verdictOf(gate, known, request, signal) };
  };
  const judgeCluster = async ([first, ...others]: readonly Judged[]) => {
    if (!first) return [];
    const verdict = await judgeOne(first);
    return isUnknown(verdict.verdict) ? [verdict] : [verdict, ...(await Promise.all(others.map(judgeOne)))];
  };
  const gates = reports.nodes.flatMap(({ name, work }) => {
    const gate = work()?.gate;
    return gate ? [{ name, gate }] : [];
  });
  const clusters = Object.values(Object.groupBy(gates, ({ name, gate }) => gate.clientCA.current() ?? name));
  const judged = (await Promise.all(clusters.map((nodes = []) => judgeCluster(nodes)))).flat();
  const seen = judged.filter(({ verdict }) => verdict.is === "allowed").map(({ name }) => name);
  if (seen.length > 0) return new Set(seen);
  const refusals = judged.flatMap(({ verdict }) => (verdict.is === "refused" ? [verdict] : []));
  return refusals.find(({ status }) => status !== 401) ?? unauthorized;
}

interface Judged {
  readonly name: string;
  readonly gate: ReadGate;
}

/** True when the caller is nobody, or could not be asked about because others ask too much. */
function isUnknown(verdict: Verdict): boolean {
  return verdict.is === "refused" && (verdict.status === 401 || verdict.status === tooMany.status);
}

const unauthorized = { is: "refused", status: 401, text: "Unauthorized\n" } as const;

async function verdictOf(
  { config, authenticator, authorizer }: ReadGate,
  certificates: PeerCertificates,
  request: IncomingMessage,
  signal: AbortSignal,
): Promise<Verdict> {
  try {
    const asking = { anonymous: config.anonymous, certificates, ...(authenticator && { authenticator }) };
    const user = await authenticate(asking, request, signal);
    if (!user) return unauthorized;
    for (const area of areas) {
      const verdict = await authorize(authorizer, user, { method: "GET", segments: [area] }, signal);
      if (verdict.is === "refused") return verdict;
    }
    return { is: "allowed" };
  } catch (error) {
    return hasCode(error, "resource_exhausted") ? tooMany : { ...unauthorized, why: messageOf(error) };
  }
}
