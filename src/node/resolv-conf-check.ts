import { messageOf } from "../lib/errors.ts";
import type { EventSink } from "../pipeline.ts";
import { type ResolverConfig, maxDomainChars, maxSearchChars, maxSearches, parseResolvConf } from "../pod/dns.ts";
import { nodeReference } from "../pod/reference.ts";
import type { HostFs } from "../seams/host.ts";

export interface ResolvConfCheckDeps {
  readonly fs: Pick<HostFs, "readFile">;
  readonly nodeName: string;
  /** KubeletConfiguration.resolvConf and clusterDomain. */
  readonly resolvConf: string;
  readonly clusterDomain: string;
  readonly events: EventSink;
}

/** Emits an event on the Node if the search list of the target's resolver file does not fit into the resolv.conf of pods, or if the file
 *  cannot be read. */
export async function checkResolvConf(deps: ResolvConfCheckDeps, signal: AbortSignal): Promise<void> {
  const { fs, resolvConf, nodeName, events } = deps;
  if (resolvConf === "") return;
  const warn = (message: string) =>
    events.event(nodeReference(nodeName), "Warning", "CheckLimitsForResolvConf", message);
  try {
    const wrong = exceeded(parseResolvConf((await fs.readFile(resolvConf, { signal })).toString()), deps);
    if (wrong !== undefined) warn(wrong);
  } catch (error) {
    if (!signal.aborted) warn(messageOf(error));
  }
}

/** The limit that a resolver file exceeds, in the kubelet's words; undefined if it exceeds none. */
function exceeded(
  { searches }: ResolverConfig,
  { resolvConf, clusterDomain }: Pick<ResolvConfCheckDeps, "resolvConf" | "clusterDomain">,
): string | undefined {
  // Pods with the cluster's DNS have three search domains of the cluster as well.
  const limit = maxSearches - (clusterDomain === "" ? 0 : 3);
  if (searches.length > limit)
    return `Resolv.conf file '${resolvConf}' contains search line consisting of more than ${limit} domains!`;
  if (searches.some((domain) => domain.length > maxDomainChars))
    return `Resolv.conf file "${resolvConf}" contains a search path which length is more than allowed ${maxDomainChars} chars!`;
  if (searches.join(" ").length <= maxSearchChars) return undefined;
  return `Resolv.conf file '${resolvConf}' contains search line which length is more than allowed ${maxSearchChars} chars!`;
}
