import type { Pod } from "../objects.ts";
import { canonicalBytes, quantityNumber } from "../pod/quantity.ts";
import type { PodUsage } from "./ports.ts";
import { type Observations, signals, type StarvedResource } from "./signals.ts";
import { availableText, thresholdText, type Threshold } from "./thresholds.ts";

interface NoticeInput {
  readonly resource: StarvedResource;
  readonly pod: Pod;
  readonly usage: PodUsage | undefined;
  readonly thresholds: readonly Threshold[];
  readonly observations: Observations;
}

/** Usage above a request. */
interface Offence {
  readonly name: string;
  readonly usage: string;
  readonly request: string;
}

/** Names the starved resource, and the containers that use more of it than requested. */
export function evictionNotice(input: NoticeInput): {
  readonly message: string;
  readonly annotations: Readonly<Record<string, string>>;
} {
  const { resource, pod, usage } = input;
  const low = `The node was low on resource: ${resource}. ${boundOf(input)}`;
  if (!usage) return { message: low, annotations: {} };
  const whole = podOffence(resource, pod, usage);
  const containers = containerOffences(resource, pod, usage);
  const say = (kind: string, { name, usage: used, request }: Offence) =>
    `${kind} ${name} was using ${used}, request is ${request}, has larger consumption of ${resource}. `;
  return {
    message: [low, ...whole.map((each) => say("Pod", each)), ...containers.map((each) => say("Container", each))].join(
      "",
    ),
    annotations: {
      ...Object.fromEntries(
        whole.flatMap(({ name, usage: used }) => [
          ["offending_pod", name],
          ["offending_pod_usage", used],
        ]),
      ),
      offending_containers: containers.map(({ name }) => name).join(","),
      offending_containers_usage: containers.map(({ usage: used }) => used).join(","),
      starved_resource: resource,
    },
  };
}

function boundOf({ resource, thresholds, observations }: NoticeInput): string {
  for (const threshold of thresholds) {
    const seen = observations.get(threshold.signal);
    if (signals[threshold.signal].resource === resource && seen)
      return `Threshold quantity: ${thresholdText(threshold, seen)}, available: ${availableText(threshold.signal, seen)}. `;
  }
  return "";
}

/** A pod with a pod-level memory request is named even if it does not exceed it. */
function podOffence(resource: StarvedResource, { metadata, spec }: Pod, { memoryBytes }: PodUsage): readonly Offence[] {
  const request = resource === "memory" ? spec.resources?.requests?.["memory"] : undefined;
  if (request === undefined || memoryBytes === undefined) return [];
  return [{ name: metadata.name, usage: canonicalBytes(memoryBytes, 1024), request }];
}

function containerOffences(resource: StarvedResource, { spec }: Pod, usage: PodUsage): readonly Offence[] {
  const containers = [...spec.containers, ...(spec.initContainers ?? [])];
  return [...usage.containers].flatMap(([name, { memoryBytes, layer, logs }]) => {
    const container = containers.find((each) => each.name === name);
    const onDisk = layer && logs && layer.bytes + logs.bytes;
    const used = resource === "memory" ? memoryBytes : resource === "ephemeral-storage" ? onDisk : undefined;
    if (!container || used === undefined) return [];
    const request = container.resources?.requests?.[resource] ?? "0";
    return used > quantityNumber(request) ? [{ name, usage: canonicalBytes(used, 1024), request }] : [];
  });
}
