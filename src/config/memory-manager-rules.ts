import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { refuse } from "./refusal.ts";

/** Checks that a resource is reserved once on a NUMA node, with the kubelet's message; its type and amount are checked where it is read.
 *  (kubelet, apis/config/validation/validation_reserved_memory.go) @throws CodedError invalid_argument */
export function reservedMemory({ reservedMemory: reservations }: KubeletConfiguration): void {
  const seen = new Set<string>();
  for (const { numaNode, limits } of reservations) {
    for (const name of Object.keys(limits)) {
      const key = `${numaNode} ${name}`;
      if (seen.has(key))
        throw refuse(
          "reservedMemory (--reserved-memory)",
          reservations,
          `the reserved memory has a duplicate value for NUMA node ${numaNode} and resource "${name}"`,
        );
      seen.add(key);
    }
  }
}
