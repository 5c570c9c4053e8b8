import { rfc3339 } from "../../lib/rfc3339.ts";
import { sortedByKey } from "../../lib/sorted.ts";
import type { CSIDriver, Pod } from "../../objects.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { csiPluginError } from "./csi-unmounter.ts";

/** Default lifetime of a token, seconds: the API server's. */
const defaultTokenSeconds = 3_600;

/** Service account tokens that a driver requests, by audience, as one entry of its volume context; empty if it requests none.
 *  @throws CodedError in the kubelet's words.
 *  @see https://kubernetes-csi.github.io/docs/token-requests.html */
export async function serviceAccountTokens(
  { tokens }: SetUpDeps,
  pod: Pod,
  csiDriver: CSIDriver | undefined,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const asked = csiDriver?.spec.tokenRequests ?? [];
  if (asked.length === 0) return {};
  try {
    const given = asked.map(async ({ audience, expirationSeconds = defaultTokenSeconds }) => {
      const { token, expiresAt } = await tokens.token(pod, { audience, expirationSeconds }, signal);
      return [audience, { token, expirationTimestamp: rfc3339(expiresAt) }] as const;
    });
    const byAudience = Object.fromEntries(await Promise.all(given));
    return { "csi.storage.k8s.io/serviceAccount.tokens": JSON.stringify(sortedByKey(byAudience)) };
  } catch (error) {
    throw csiPluginError("mounter.SetUpAt failed to get service accoount token attributes: ", error);
  }
}
