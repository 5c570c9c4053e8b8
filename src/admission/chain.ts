import type { HostFacts } from "../host/facts.ts";
import type { Logger } from "../lib/log.ts";
import type { Node } from "../objects.ts";
import type { Admission, NodeSource, Pressure, Rejection } from "../pipeline.ts";
import { isCritical, isStaticPod } from "../pod/containers.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { GivenPod } from "../roles.ts";
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
  /** Asks the API server for this node's object, now. */
  readonly freshNode: (signal: AbortSignal) => Promise<Node>;
  /** This node's object as it would register: a static pod is admitted by it where the API server has not been heard of yet. */
  readonly ownNode: () => Node;
  /** Resources that run short on the node; undefined while that is not known. */
  readonly pressure: () => Pressure | undefined;
  /** Resources of the node itself, as quantities by name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** In the order in which they allocate. */
  readonly managers: readonly Pick<ResourceManager, "allocate" | "allocatable">[];
  /** The target, as it was when the node began. */
  readonly facts: Pick<HostFacts, "appArmor">;
  /** KubeletConfiguration.allowedUnsafeSysctls. */
  readonly allowedUnsafeSysctls: readonly string[];
  /** True once the target is about to shut down. */
  readonly goingDown: { get(): true | undefined };
  /** Makes room for critical pods. */
  readonly makeRoom: MakeRoom;
  readonly log: Logger;
}

/** In the kubelet's order, after pressure, the node's own settings and what plugins have to hand out: the first refusal counts, and no other
 *  pod's end would help. */
const preliminary: readonly Handler[] = [osLabelMatches, osFieldMatches, supplementalGroupsServed];
/** Checks that the scheduler makes too, after those of resources. */
const predicates: readonly Handler[] = [nodeAffinityMatches, nodeNameMatches, hostPortsFree, noExecuteTolerated];

const shuttingDown: Rejection = {
  reason: "NodeShutdown",
  message: "Pod was rejected as the node is shutting down.",
};

/** Results of all checks of a candidate. */
interface Verdict {
  readonly preliminary: Rejection | undefined;
  readonly short: readonly Shortage[];
  readonly refusals: readonly { readonly handler: Handler; readonly refusal: Rejection }[];
}

/** The kubelet's own admission: it looks again at what the scheduler decided, since pods can be bound without it and a node can
 *  change meanwhile. A critical pod that lacks nothing but room gets it. (kubelet, lifecycle/predicate.go) */
export function createAdmission(deps: AdmissionDeps): Admission {
  const { node: source, freshNode, ownNode, managers, makeRoom, log } = deps;
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
  /** Labels may have just been set: a node seen too early must not cost a pod its life. */
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
      // A Node that somebody deleted is registered anew: its pods need not end for that.
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
      return noRoom ?? appArmorEnforced(pod, deps.facts.appArmor) ?? (deps.goingDown.get() && shuttingDown);
    },
  };
}

/** Has the managers allocate what the pod asks for, up to the first that refuses: what the others gave it is released at its end. */
async function allocate(
  managers: AdmissionDeps["managers"],
  pod: GivenPod,
  others: readonly GivenPod[],
  signal: AbortSignal,
): Promise<Rejection | undefined> {
  for (const manager of managers) {
    const refused = await manager.allocate(pod, others, signal);
    if (refused) return refused;
  }
  return undefined;
}

/** Resources that others have put on the node count as the API server shows them. */
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
