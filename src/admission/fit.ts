import type { Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { podRequests } from "../pod/resources.ts";
import type { Handler } from "./candidate.ts";

/** Looked at in this order; others follow by name. */
const coreResources = ["cpu", "memory", "ephemeral-storage"];

/** The node has room: for one pod more, and for all that it requests beside what the others request.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ */
export const resourcesFit: Handler = ({ pod, others, allocatable }) => {
  const room = quantityValue(allocatable["pods"] ?? "0");
  if (others.length + 1 > room) return insufficient("pods", 1, others.length, room);
  const requests = podRequests(pod, { overhead: true });
  const names = Object.keys(requests).sort();
  for (const name of [...coreResources, ...names.filter((one) => !coreResources.includes(one))]) {
    const capacity = allocatable[name];
    // A resource of the cluster's, which the node does not have.
    if (capacity === undefined && isExtendedResource(name)) continue;
    const requested = amount(name, requests[name]);
    const used = others.reduce((sum, other) => sum + amount(name, requestsOf(other)[name]), 0);
    const available = amount(name, capacity);
    if (requested > 0 && requested > available - used) return insufficient(name, requested, used, available);
  }
  return undefined;
};

function requestsOf(pod: Pod): Readonly<Record<string, string>> {
  return podRequests(pod, { overhead: true });
}

/** CPU in thousandths, all else in whole units. */
function amount(name: string, quantity: string | undefined): number {
  if (quantity === undefined) return 0;
  return name === "cpu" ? quantityMilli(quantity) : quantityValue(quantity);
}

function insufficient(name: string, requested: number, used: number, capacity: number): Rejection {
  return {
    reason: `OutOf${name}`,
    message: `Node didn't have enough resource: ${name}, requested: ${requested}, used: ${used}, capacity: ${capacity}`,
  };
}
