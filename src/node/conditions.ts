import type { NodeCondition } from "../objects.ts";
import type { Pressure } from "../pipeline.ts";
import { type LinkTrouble, troubleReasons } from "../seams/provider.ts";

/** All conditions of a node with all their reasons; docs/troubleshooting.md has the remedy for each. */
export const conditionReasons = {
  Ready: ["KubeletReady", "KubeletNotReady", ...troubleReasons],
  MemoryPressure: ["KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"],
  DiskPressure: ["KubeletHasNoDiskPressure", "KubeletHasDiskPressure"],
  PIDPressure: ["KubeletHasSufficientPID", "KubeletHasInsufficientPID"],
  PodNetworkIsolated: ["TargetNetworkOnly", "ServiceTunnelUnavailable", "FirewallBlocksTunnel"],
  TargetPrivileges: ["SufficientPrivileges", "InsufficientPrivileges", "SudoNeedsPassword"],
  DaemonSetsSkipped: ["NotRunByGraftlet"],
  KubeletReachable: [
    "KubeletReachable",
    "CertificateNotApproved",
    "Timeout",
    "ClientCertificateUntrusted",
    "NotPermitted",
    "NoRoute",
  ],
} as const;

/** Conditions that report resource pressure. */
export const pressureTypes = ["MemoryPressure", "DiskPressure", "PIDPressure"] as const;

type Reasons = typeof conditionReasons;
export type ConditionType = keyof Reasons;
type ConditionStateOf<Type extends ConditionType> = {
  readonly type: Type;
  readonly status: "True" | "False" | "Unknown";
  readonly reason: Reasons[Type][number];
  readonly message: string;
};

/** A condition before its times are known. */
export type NodeConditionState = { [Type in ConditionType]: ConditionStateOf<Type> }[ConditionType];
/** Result of the API server's connection to the kubelet API. */
export type ReachableState = ConditionStateOf<"KubeletReachable">;

/** Whether the API server reaches the kubelet API; undefined if that is not known. */
export function isReachable(state: ReachableState | undefined): boolean | undefined {
  return state === undefined || state.status === "Unknown" ? undefined : state.status === "True";
}

/** The conditions that a kubelet writes, Ready last.
 *  @param pressure undefined while the target cannot be read.
 *  @param problems why the node is not ready; empty if it is. */
export function kubeletConditions(
  pressure: Pressure | undefined,
  problems: readonly string[],
): readonly NodeConditionState[] {
  const pressures = pressure
    ? [
        pressureCondition(
          "MemoryPressure",
          pressure.memory,
          ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
          ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
        ),
        pressureCondition(
          "DiskPressure",
          pressure.disk,
          ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
          ["KubeletHasDiskPressure", "kubelet has disk pressure"],
        ),
        pressureCondition(
          "PIDPressure",
          pressure.pid,
          ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
          ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
        ),
      ]
    : [];
  return [...pressures, readyCondition(problems)];
}

/** Conditions of a node whose target is unreachable. */
export function unreachableConditions({ reason, message }: LinkTrouble): readonly NodeConditionState[] {
  return [{ type: "Ready", status: "False", reason, message }];
}

function pressureCondition<Type extends ConditionType>(
  type: Type,
  bad: boolean,
  good: readonly [Reasons[Type][number], string],
  ill: readonly [Reasons[Type][number], string],
): ConditionStateOf<Type> {
  const [reason, message] = bad ? ill : good;
  return { type, status: bad ? "True" : "False", reason, message };
}

/** Message of a node that is not ready because its machine is shutting down. */
export const shuttingDown = "node is shutting down";

/** The condition Ready. @param problems why the node is not ready; empty if it is. */
export function readyCondition(problems: readonly string[]): NodeConditionState {
  if (problems.length === 0)
    return { type: "Ready", status: "True", reason: "KubeletReady", message: "kubelet is posting ready status" };
  const message = problems.length === 1 ? problems[0] : `[${problems.join(", ")}]`;
  return { type: "Ready", status: "False", reason: "KubeletNotReady", message: message ?? "" };
}

/** Adds times to conditions: the transition time changes only with the status. @param now RFC 3339. */
export function withTimes(
  verdicts: readonly NodeConditionState[],
  before: readonly NodeCondition[],
  now: string,
): NodeCondition[] {
  return verdicts.map((each) => {
    const old = before.find(({ type }) => type === each.type);
    const lastTransitionTime = old?.status === each.status && old.lastTransitionTime ? old.lastTransitionTime : now;
    return { ...each, lastHeartbeatTime: now, lastTransitionTime };
  });
}

/** Event reasons for conditions whose status changed. The first statuses of a new node do not count as changes, except Ready's. */
export function changedConditionReasons(
  before: readonly NodeCondition[],
  after: readonly NodeCondition[],
): readonly string[] {
  return after.flatMap(({ type, status }) => {
    const old = before.find((each) => each.type === type);
    if (old?.status === status) return [];
    const reason = reasons[type]?.[status === "True" ? 0 : 1];
    return reason === undefined || (!old && type === "Ready" && status !== "True") ? [] : [reason];
  });
}

const reasons: Readonly<Record<string, readonly [string, string]>> = {
  Ready: ["NodeReady", "NodeNotReady"],
  MemoryPressure: ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"],
  DiskPressure: ["NodeHasDiskPressure", "NodeHasNoDiskPressure"],
  PIDPressure: ["NodeHasInsufficientPID", "NodeHasSufficientPID"],
};
