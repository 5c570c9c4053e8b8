import type { Logger } from "../lib/log.ts";
import type { Node } from "../objects.ts";
import type { Admission, NodeSource, Rejection } from "../pipeline.ts";
import { isStaticPod } from "../pod/containers.ts";
import type { Candidate, Handler } from "./candidate.ts";
import { resourcesFit } from "./fit.ts";
import { hostPortsFree } from "./host-ports.ts";
import { nodeAffinityMatches } from "./node-affinity.ts";
import { nodeNameMatches } from "./node-name.ts";
import { osFieldMatches, osLabelMatches } from "./os.ts";
import { supplementalGroupsServed } from "./supplemental-groups.ts";
import { sysctlsAllowed } from "./sysctls.ts";
import { noExecuteTolerated } from "./taints.ts";

export interface AdmissionDeps {
  readonly node: NodeSource;
  /** Asks the API server for this node's object, now. */
  readonly freshNode: (signal: AbortSignal) => Promise<Node>;
  /** This node's object as it would register: a static pod is admitted by it where the API server has not been heard of yet. */
  readonly ownNode: () => Node;
  /** What the node has for pods, by resource name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** KubeletConfiguration.allowedUnsafeSysctls. */
  readonly allowedUnsafeSysctls: readonly string[];
  readonly log: Logger;
}

/** In the kubelet's order, after that of the node's own settings: the first refusal counts. */
const handlers: readonly Handler[] = [
  osLabelMatches,
  osFieldMatches,
  supplementalGroupsServed,
  resourcesFit,
  nodeAffinityMatches,
  nodeNameMatches,
  hostPortsFree,
  noExecuteTolerated,
];

/** The kubelet's own admission: it looks again at what the scheduler decided, since pods can be bound without it and a node can
 *  change meanwhile. (kubelet, lifecycle/predicate.go) */
export function createAdmission(deps: AdmissionDeps): Admission {
  const { node: source, freshNode, ownNode, allocatable, log } = deps;
  const all = [sysctlsAllowed(deps.allowedUnsafeSysctls), ...handlers];
  const refresh = async (signal: AbortSignal): Promise<Node | undefined> => {
    try {
      return await freshNode(signal);
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "node could not be read anew");
      return undefined;
    }
  };
  return {
    async admit(pod, others, signal) {
      const node = source.node() ?? (isStaticPod(pod) ? ownNode() : await refresh(signal));
      if (!node) return { reason: "InvalidNodeInfo", message: "Kubelet cannot get node info." };
      const candidate: Candidate = { pod, others, node, allocatable: allocatable() };
      const refusals = refusalsOf(all, candidate);
      const first = refusals[0];
      if (first?.handler !== nodeAffinityMatches || refusals.length > 1) return first?.refusal;
      // Labels may have just been set: a node seen too early must not cost a pod its life.
      const newer = await refresh(signal);
      return newer ? refusalsOf(all, { ...candidate, node: newer })[0]?.refusal : first.refusal;
    },
  };
}

function refusalsOf(
  all: readonly Handler[],
  candidate: Candidate,
): readonly { readonly handler: Handler; readonly refusal: Rejection }[] {
  return all.flatMap((handler) => {
    const refusal = handler(candidate);
    return refusal ? [{ handler, refusal }] : [];
  });
}
