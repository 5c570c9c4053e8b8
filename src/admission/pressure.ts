import type { Pod, Taint } from "../objects.ts";
import type { Pressure, Rejection } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { qosClass } from "../pod/qos.ts";
import { tolerates } from "./taints.ts";

const conditionTypes = { memory: "MemoryPressure", disk: "DiskPressure", pid: "PIDPressure" } as const;
const memoryTaint: Taint = { key: "node.kubernetes.io/memory-pressure", effect: "NoSchedule" };

/** Rejects new pods under node pressure, in the kubelet's words; critical and static pods are admitted. Memory pressure alone rejects
 *  only BestEffort pods that do not tolerate its taint. Pods that have already started are not checked again, so restarting the agent
 *  evicts none.
 *  (kubelet, eviction/eviction_manager.go, Admit)
 *  @param pressure undefined while unknown: nothing is rejected.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function rejectUnderPressure(pod: Pod, pressure: Pressure | undefined): Rejection | undefined {
  const short = (["memory", "disk", "pid"] as const).filter((name) => pressure?.[name]);
  if (short.length === 0 || isCritical(pod) || pod.status?.startTime !== undefined) return undefined;
  if (short.join() === "memory" && toleratesMemoryPressure(pod)) return undefined;
  const conditions = short.map((name) => conditionTypes[name]).join(" ");
  return { reason: "Evicted", message: `The node had condition: [${conditions}]. ` };
}

function toleratesMemoryPressure({ spec, status }: Pod): boolean {
  if ((status?.qosClass ?? qosClass(spec)) !== "BestEffort") return true;
  return (spec.tolerations ?? []).some((toleration) => tolerates(toleration, memoryTaint));
}
