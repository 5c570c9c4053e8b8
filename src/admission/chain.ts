import type { Logger } from "../lib/log.ts";
import type { Node } from "../objects.ts";
import type { Admission, DeviceAllocator, NodeSource, Rejection } from "../pipeline.ts";
import { isStaticPod } from "../pod/containers.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
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
  readonly devices: DeviceAllocator;
  /** KubeletConfiguration.allowedUnsafeSysctls. */
  readonly allowedUnsafeSysctls: readonly string[];
  readonly log: Logger;
}

/** In the kubelet's order, after the node's own settings and what plugins have to hand out: the first refusal counts. */
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
  const { node: source, freshNode, ownNode, devices, log } = deps;
  const sysctls = sysctlsAllowed(deps.allowedUnsafeSysctls);
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
      const asking = { pod, others, node, allocatable: extendedOf(node) };
      const refused = sysctls(asking) ?? (await devices.allocate(pod, others, signal));
      if (refused) return refused;
      const candidate = { ...asking, allocatable: { ...asking.allocatable, ...devices.allocatable(pod) } };
      const refusals = refusalsOf(candidate);
      const first = refusals[0];
      if (first?.handler !== nodeAffinityMatches || refusals.length > 1) return first?.refusal;
      // Labels may have just been set: a node seen too early must not cost a pod its life.
      const newer = await refresh(signal);
      return newer ? refusalsOf({ ...candidate, node: newer })[0]?.refusal : first.refusal;
    },
  };
}

/** Resources that others have put on the node count as the API server shows them. */
function extendedOf({ status }: Node): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(status?.allocatable ?? {}).filter(([name]) => isExtendedResource(name)));
}

function refusalsOf(candidate: Candidate): readonly { readonly handler: Handler; readonly refusal: Rejection }[] {
  return handlers.flatMap((handler) => {
    const refusal = handler(candidate);
    return refusal ? [{ handler, refusal }] : [];
  });
}
