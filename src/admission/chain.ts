import type { HostFacts } from "../host/facts.ts";
import type { Logger } from "../lib/log.ts";
import type { Node } from "../objects.ts";
import type { Admission, NodeSource, Pressure, Rejection } from "../pipeline.ts";
import { isCritical, isStaticPod } from "../pod/containers.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import type { ResourceManager } from "../resource-manager.ts";
import {
  appArmorEnforced,
  declaredFeaturesMatch,
  hostPortsFree,
  nodeAffinityMatches,
  nodeNameMatches,
  osFieldMatches,
  osLabelMatches,
  rejectUnderPressure,
  supplementalGroupsSupported,
  noExecuteTolerated,
} from "./predicates.ts";
import type { PodAdmitAttributes, PodAdmitHandler } from "./admit-attributes.ts";
import { outOfResource, insufficientResources } from "./fit.ts";
import type { Preempt } from "./preemption.ts";
import { sysctlsAllowed } from "./sysctls.ts";

export interface AdmissionDeps {
  readonly node: NodeSource;
  /** Reads this node's Node from the API server, bypassing the cache. */
  readonly fetchNode: (signal: AbortSignal) => Promise<Node>;
  /** The Node as it would be registered; used to admit static pods before the API server has been reached. */
  readonly ownNode: () => Node;
  /** Resources under pressure; undefined while unknown. */
  readonly pressure: () => Pressure | undefined;
  /** Resources of the node itself, as quantities by name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** Allocates what a pod requests; the sync loop releases the allocations of a rejected pod. */
  readonly topology: Required<Pick<ResourceManager, "allocate">>;
  readonly managers: readonly Pick<ResourceManager, "allocatable">[];
  /** Facts about the target, read when the node started. */
  readonly facts: Pick<HostFacts, "appArmor">;
  /** KubeletConfiguration.allowedUnsafeSysctls. */
  readonly allowedUnsafeSysctls: readonly string[];
  /** True once the target is shutting down. */
  readonly shuttingDown: { get(): true | undefined };
  /** Preempts pods in favour of a critical one. */
  readonly preempt: Preempt;
  readonly log: Logger;
}

/** Checks that preemption cannot help with, in the kubelet's order; they run after node pressure, sysctls and device allocation. The
 *  first rejection wins. */
const basicChecks: readonly PodAdmitHandler[] = [osLabelMatches, osFieldMatches, supplementalGroupsSupported];
/** Scheduler predicates, checked after resources. */
const predicates: readonly PodAdmitHandler[] = [
  nodeAffinityMatches,
  nodeNameMatches,
  hostPortsFree,
  noExecuteTolerated,
];

const nodeShutdown: Rejection = {
  reason: "NodeShutdown",
  message: "Pod was rejected as the node is shutting down.",
};

type AdmissionResults = ReturnType<typeof runChecks>;

/** The kubelet's admission: repeats the scheduler's checks, because pods can be bound without the scheduler and nodes can change in
 *  between. A critical pod that fails only for lack of resources preempts others. (kubelet, lifecycle/predicate.go) */
export function createAdmission(deps: AdmissionDeps): Admission {
  const { node: nodeSource, fetchNode, ownNode, topology, managers, preempt, log } = deps;
  const sysctls = sysctlsAllowed(deps.allowedUnsafeSysctls);
  const refreshNode = async (signal: AbortSignal): Promise<Node | undefined> => {
    try {
      return await fetchNode(signal);
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "cannot refresh Node");
      return undefined;
    }
  };
  /** The cached Node may lack labels that have just been set: refresh it before rejecting a pod for node affinity alone. */
  const checkWithFreshNode = async (attributes: PodAdmitAttributes, signal: AbortSignal): Promise<AdmissionResults> => {
    const results = runChecks(attributes);
    const onlyPredicateFailed = results.insufficient.length === 0 && results.rejections.length === 1;
    if (results.basicRejection || !onlyPredicateFailed || results.rejections[0]?.handler !== nodeAffinityMatches)
      return results;
    const newer = await refreshNode(signal);
    return newer ? runChecks({ ...attributes, node: newer }) : results;
  };
  return {
    async admit(pod, others, signal) {
      const pressureRejection = rejectUnderPressure(pod, deps.pressure());
      if (pressureRejection) return pressureRejection;
      // A deleted Node is re-registered; that is no reason to reject its pods.
      const node = nodeSource.node() ?? (isStaticPod(pod) ? undefined : await refreshNode(signal)) ?? ownNode();
      const attributes = { pod, otherPods: others, node, allocatable: extendedResources(node) };
      const earlyRejection = sysctls(attributes) ?? (await topology.allocate(pod, others, signal));
      if (earlyRejection) return earlyRejection;
      const allocatable: Record<string, string> = { ...attributes.allocatable, ...deps.allocatable() };
      for (const manager of managers) Object.assign(allocatable, manager.allocatable(pod));
      const verdict = await checkWithFreshNode({ ...attributes, allocatable }, signal);
      const { insufficient, rejections } = verdict;
      if (verdict.basicRejection) return verdict.basicRejection;
      const preempts = isCritical(pod) && insufficient.length > 0;
      const refusal = insufficient[0] && !preempts ? outOfResource(insufficient[0]) : rejections[0]?.refusal;
      const lateRejection = preempts && !refusal ? await preempt(pod, others, insufficient, signal) : refusal;
      return (
        lateRejection ??
        appArmorEnforced(pod, deps.facts.appArmor) ??
        declaredFeaturesMatch(pod) ??
        (deps.shuttingDown.get() && nodeShutdown)
      );
    },
  };
}

/** Extended resources of the Node, with the quantities in the API server: other components may have added them. */
function extendedResources({ status }: Node): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(status?.allocatable ?? {}).filter(([name]) => isExtendedResource(name)));
}

function runChecks(attributes: PodAdmitAttributes) {
  const refusals = (handlers: readonly PodAdmitHandler[]) =>
    handlers.flatMap((handler) => {
      const refusal = handler(attributes);
      return refusal ? [{ handler, refusal }] : [];
    });
  return {
    basicRejection: refusals(basicChecks)[0]?.refusal,
    insufficient: insufficientResources(attributes),
    rejections: refusals(predicates),
  };
}
