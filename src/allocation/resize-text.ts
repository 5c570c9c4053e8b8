import { sortedByKey } from "../lib/sorted.ts";
import type { Container, Pod } from "../objects.ts";
import { goJson } from "../pod/go-json.ts";

/** Text of a resize event, in the kubelet's format.
 *  @param generation of the spec that requested it. @param error why it is pending or has failed. */
export function resizeText(what: string, { spec }: Pod, generation: number, error?: string): string {
  const { containers, initContainers = [] } = spec;
  const summary = {
    ...(initContainers.length > 0 && { initContainers: initContainers.map(amounts) }),
    containers: containers.map(amounts),
    generation,
    ...(error && { error }),
  };
  return `${what}: ${goJson(summary)}`;
}

function amounts({ name, resources }: Container) {
  const { limits, requests } = resources ?? {};
  return {
    name,
    resources: { ...(limits && { limits: sortedByKey(limits) }), ...(requests && { requests: sortedByKey(requests) }) },
  };
}
