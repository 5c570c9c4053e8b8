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
    message: `${ownNetwork}. When the node was new, ${obstacle}. Set network: tunneled once that is fixed`,
  };
}

/** Returns why pods of a node cannot reach the cluster; undefined if they are on its network.
 *  @param unavailableReason why the service tunnel does not work; undefined if it does. */
export function isolationOf(
  network: TargetNetwork | undefined,
  unavailableReason: () => string | undefined,
): (() => Isolation | undefined) | undefined {
  if (network?.isolated) {
    const isolation = isolationCondition(network.obstacle);
    return () => isolation;
  }
  if (!network?.tunneled) return undefined;
  return () => {
    const message = unavailableReason();
    return message === undefined ? undefined : { reason: "ServiceTunnelUnavailable", message };
  };
}

/** Properties of a target that show as conditions of its node. */
export interface TargetTraits {
  /** Undefined while pods reach the cluster. */
  readonly isolation: Isolation | undefined;
  /** Undefined while unknown; `"whole"` if no privileges can be missing with this provider. */
  readonly rights: MissingPrivileges | "whole" | undefined;
}

const isolatedType = "PodNetworkIsolated";
const rightsType = "TargetPrivileges";

/** The conditions of a target by its traits. Pure. */
export function targetConditions({ isolation, rights }: TargetTraits) {
  const verdicts: NodeConditionState[] = [];
  /** Types to remove from the Node: left by another target of the same name, or by other settings. */
  const absent: string[] = [];
  if (isolation) verdicts.push({ type: isolatedType, status: "True", ...isolation });
  else absent.push(isolatedType);
  if (rights === "whole") absent.push(rightsType);
  else if (rights) verdicts.push(privilegesCondition(rights));
  return { verdicts, absent };
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
