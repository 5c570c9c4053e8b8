import { sortedByKey } from "../lib/sorted.ts";
import type { Container, Pod } from "../objects.ts";
import { goJson } from "../pod/go-json.ts";

/** Text of a resize event, in the kubelet's form.
 *  @param generation of the spec that asked for it. @param error why it is not done. */
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
