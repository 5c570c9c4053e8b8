import type { HostFacts } from "../host/facts.ts";
import type { Logger } from "../lib/log.ts";
import type { Node } from "../objects.ts";
import type { Admission, NodeSource, Pressure, Rejection } from "../pipeline.ts";
import { isCritical, isStaticPod } from "../pod/containers.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { AllocatedPod } from "../roles.ts";
import { appArmorEnforced } from "./app-armor.ts";
import type { Candidate, Handler } from "./candidate.ts";
import { type Shortage, insufficient, shortages } from "./fit.ts";
import { hostPortsFree } from "./host-ports.ts";
import { nodeAffinityMatches } from "./node-affinity.ts";
import { nodeNameMatches } from "./node-name.ts";
import { osFieldMatches, osLabelMatches } from "./os.ts";
import type { MakeRoom } from "./preemption.ts";
import { pressureBorne } from "./pressure.ts";
import { supplementalGroupsServed } from "./supplemental-groups.ts";
import { sysctlsAllowed } from "./sysctls.ts";
import { noExecuteTolerated } from "./taints.ts";

export interface AdmissionDeps {
  readonly node: NodeSource;
  /** Reads this node's Node from the API server, bypassing the cache. */
  readonly freshNode: (signal: AbortSignal) => Promise<Node>;
  /** The Node as it would be registered; used to admit static pods before the API server has been reached. */
  readonly ownNode: () => Node;
  /** Resources under pressure; undefined while unknown. */
  readonly pressure: () => Pressure | undefined;
  /** Resources of the node itself, as quantities by name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** In the order in which they allocate. */
  readonly managers: readonly Pick<ResourceManager, "allocate" | "allocatable">[];
  /** Facts about the target, read when the node started. */
  readonly facts: Pick<HostFacts, "appArmor">;
  /** KubeletConfiguration.allowedUnsafeSysctls. */
  readonly allowedUnsafeSysctls: readonly string[];
  /** True once the target is shutting down. */
  readonly shuttingDown: { get(): true | undefined };
  /** Preempts pods in favour of a critical one. */
  readonly makeRoom: MakeRoom;
  readonly log: Logger;
}

/** Checks that preemption cannot help with, in the kubelet's order; they run after node pressure, sysctls and device allocation. The
 *  first rejection wins. */
const preliminary: readonly Handler[] = [osLabelMatches, osFieldMatches, supplementalGroupsServed];
/** Scheduler predicates, checked after resources. */
const predicates: readonly Handler[] = [nodeAffinityMatches, nodeNameMatches, hostPortsFree, noExecuteTolerated];

const shuttingDown: Rejection = {
  reason: "NodeShutdown",
  message: "Pod was rejected as the node is shutting down.",
};

/** Results of all checks of a pod. */
interface Verdict {
  readonly preliminary: Rejection | undefined;
  readonly short: readonly Shortage[];
  readonly refusals: readonly { readonly handler: Handler; readonly refusal: Rejection }[];
}

/** The kubelet's admission: repeats the scheduler's checks, because pods can be bound without the scheduler and nodes can change in
 *  between. A critical pod that fails only for lack of resources preempts others. (kubelet, lifecycle/predicate.go) */
export function createAdmission(deps: AdmissionDeps): Admission {
  const { node: source, freshNode, ownNode, managers, makeRoom, log } = deps;
  const sysctls = sysctlsAllowed(deps.allowedUnsafeSysctls);
  const refresh = async (signal: AbortSignal): Promise<Node | undefined> => {
    try {
      return await freshNode(signal);
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "cannot refresh Node");
      return undefined;
    }
  };
  /** The cached Node may lack labels that have just been set: refresh it before rejecting a pod for node affinity alone. */
  const judgeTwice = async (candidate: Candidate, signal: AbortSignal): Promise<Verdict> => {
    const verdict = judge(candidate);
    const byLabels = verdict.short.length === 0 && verdict.refusals.length === 1;
    if (verdict.preliminary || !byLabels || verdict.refusals[0]?.handler !== nodeAffinityMatches) return verdict;
    const newer = await refresh(signal);
    return newer ? judge({ ...candidate, node: newer }) : verdict;
  };
  return {
    async admit(pod, others, signal) {
      const pressed = pressureBorne(pod, deps.pressure());
      if (pressed) return pressed;
      // A deleted Node is re-registered; that is no reason to reject its pods.
      const node = source.node() ?? (isStaticPod(pod) ? undefined : await refresh(signal)) ?? ownNode();
      const asking = { pod, others, node, allocatable: extendedOf(node) };
      const refused = sysctls(asking) ?? (await allocate(managers, pod, others, signal));
      if (refused) return refused;
      const allocatable: Record<string, string> = { ...asking.allocatable, ...deps.allocatable() };
      for (const manager of managers) Object.assign(allocatable, manager.allocatable(pod));
      const verdict = await judgeTwice({ ...asking, allocatable }, signal);
      const { short, refusals } = verdict;
      if (verdict.preliminary) return verdict.preliminary;
      const yields = isCritical(pod) && short.length > 0;
      const refusal = short[0] && !yields ? insufficient(short[0]) : refusals[0]?.refusal;
      const noRoom = yields && !refusal ? await makeRoom(pod, others, short, signal) : refusal;
      return noRoom ?? appArmorEnforced(pod, deps.facts.appArmor) ?? (deps.shuttingDown.get() && shuttingDown);
    },
  };
}

/** Has each manager allocate what the pod requests, until one rejects it. Allocations of a rejected pod are released at its end. */
async function allocate(
  managers: AdmissionDeps["managers"],
  pod: AllocatedPod,
  others: readonly AllocatedPod[],
  signal: AbortSignal,
): Promise<Rejection | undefined> {
  for (const manager of managers) {
    const refused = await manager.allocate(pod, others, signal);
    if (refused) return refused;
  }
  return undefined;
}

/** Extended resources that other components added to the Node count as the API server shows them. */
function extendedOf({ status }: Node): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(status?.allocatable ?? {}).filter(([name]) => isExtendedResource(name)));
}

function judge(candidate: Candidate): Verdict {
  const refusals = (handlers: readonly Handler[]) =>
    handlers.flatMap((handler) => {
      const refusal = handler(candidate);
      return refusal ? [{ handler, refusal }] : [];
    });
  return {
    preliminary: refusals(preliminary)[0]?.refusal,
    short: shortages(candidate),
    refusals: refusals(predicates),
  };
}
