import type { PlaceholderCount } from "../pod/placeholder-counts.ts";
import { placeholderReason } from "../pod/placeholder.ts";
import type { MissingPrivileges, TargetNetwork } from "../seams/provider.ts";
import type { NodeConditionState } from "./conditions.ts";

/** Why pods of a node cannot reach the cluster. */
export type Isolation = Pick<Extract<NodeConditionState, { readonly type: typeof isolatedType }>, "reason" | "message">;

const ownNetwork =
  "pods are on the target's own network: they cannot reach pods of other nodes or Services, and cannot be reached by them";

/** Condition for pods on the target's own network. @param obstacle why, in a sentence, if the configuration did not request it. */
export function isolationCondition(obstacle: string | undefined): Isolation {
  if (obstacle === undefined) return { reason: "TargetNetworkOnly", message: ownNetwork };
  return {
    reason: "ServiceTunnelUnavailable",
    message: `${ownNetwork}. When the node was created, ${obstacle}. Set network: tunneled once that is fixed`,
  };
}

/** Returns why pods of a node cannot reach the cluster; undefined if they are on its network.
 *  @param tunnelObstacle why pods do not reach Services through the service tunnel; undefined if they do. */
export function isolationOf(
  network: TargetNetwork | undefined,
  tunnelObstacle: () => Isolation | undefined,
): (() => Isolation | undefined) | undefined {
  if (network?.isolated) {
    const isolation = isolationCondition(network.obstacle);
    return () => isolation;
  }
  return network?.tunneled ? tunnelObstacle : undefined;
}

/** Properties of a target that show as conditions of its node. */
export interface TargetTraits {
  /** Why pods cannot reach the cluster; undefined if they can. */
  readonly isolation: Isolation | undefined;
  /** Missing privileges; undefined while unknown, `"whole"` if no privileges can be missing with this provider. */
  readonly rights: MissingPrivileges | "whole" | undefined;
  /** Pods that the node shows as Ready although they do not run, by DaemonSet. */
  readonly placeholders: readonly PlaceholderCount[];
}

const isolatedType = "PodNetworkIsolated";
const rightsType = "TargetPrivileges";
const skippedType = "DaemonSetsSkipped";
/** Number of DaemonSets that a condition names. */
const maxNamed = 5;

/** The conditions of a target by its traits. Pure. */
export function targetConditions({ isolation, rights, placeholders }: TargetTraits) {
  const verdicts: NodeConditionState[] = [];
  /** Types to remove from the Node: left by another target of the same name, or by other settings. */
  const absent: string[] = [];
  if (isolation) verdicts.push({ type: isolatedType, status: "True", ...isolation });
  else absent.push(isolatedType);
  if (rights === "whole") absent.push(rightsType);
  else if (rights) verdicts.push(privilegesCondition(rights));
  if (placeholders.length > 0) verdicts.push(skippedCondition(placeholders));
  else absent.push(skippedType);
  return { verdicts, absent };
}

/** Condition of a node that shows placeholders. This is not a problem of the node, since its configuration requests it. */
function skippedCondition(placeholders: readonly PlaceholderCount[]): NodeConditionState {
  const names = placeholders.map(({ namespace, daemonSet }) => `${namespace}/${daemonSet || "(deleted)"}`);
  const more = names.length > maxNamed ? ` and ${names.length - maxNamed} more` : "";
  const named = names.slice(0, maxNamed).join(", ");
  const message = `pods of these DaemonSets are shown as Ready, but do not run here: ${named}${more}. The node's setting daemonSets selects which run`;
  return { type: skippedType, status: "True", reason: placeholderReason, message };
}

function privilegesCondition({ messages, sudoNeedsPassword }: MissingPrivileges): NodeConditionState {
  const reason = sudoNeedsPassword ? "SudoNeedsPassword" : "InsufficientPrivileges";
  if (messages.length > 0) return { type: rightsType, status: "False", reason, message: messages.join(" ") };
  return {
    type: rightsType,
    status: "True",
    reason: "SufficientPrivileges",
    message: "the login user has all privileges on the target that a node needs",
  };
}
