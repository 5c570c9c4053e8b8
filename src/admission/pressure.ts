import type { Pod, Taint } from "../objects.ts";
import type { Pressure, Rejection } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { qosClass } from "../pod/qos.ts";
import { tolerates } from "./taints.ts";

const conditionTypes = { memory: "MemoryPressure", disk: "DiskPressure", pid: "PIDPressure" } as const;
const memoryTaint: Taint = { key: "node.kubernetes.io/memory-pressure", effect: "NoSchedule" };

/** Refuses a new pod while something runs short on the node, in the kubelet's words; critical and static pods are let in. Short memory
 *  alone keeps out only what requests none and does not tolerate it. A pod that has begun is not looked at again: a restart of the
 *  agent ends none for a pressure. (kubelet, eviction/eviction_manager.go, Admit)
 *  @param pressure undefined while it is not known, and nothing is refused.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function pressureBorne(pod: Pod, pressure: Pressure | undefined): Rejection | undefined {
  const short = (["memory", "disk", "pid"] as const).filter((name) => pressure?.[name]);
  if (short.length === 0 || isCritical(pod) || pod.status?.startTime !== undefined) return undefined;
  if (short.join() === "memory" && bearsShortMemory(pod)) return undefined;
  const conditions = short.map((name) => conditionTypes[name]).join(" ");
  return { reason: "Evicted", message: `The node had condition: [${conditions}]. ` };
}

function bearsShortMemory({ spec, status }: Pod): boolean {
  if ((status?.qosClass ?? qosClass(spec)) !== "BestEffort") return true;
  return (spec.tolerations ?? []).some((toleration) => tolerates(toleration, memoryTaint));
}
