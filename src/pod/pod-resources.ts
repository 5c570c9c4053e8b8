import type { Container, Pod, PodSpec, Resources } from "../objects.ts";
import { quantityMilli, quantityNumber, quantityValue } from "./quantity.ts";
import { goJson } from "./hash.ts";

/** The resources of a pod: by name of its containers and init containers, and pod-level. */
export interface PodResources {
  readonly containers: Readonly<Record<string, Resources>>;
  readonly pod?: Resources;
}

/** Resizable resources: CPU in millicores and memory in bytes; 0 if unset. */
export type ResizableAmounts = ReturnType<typeof amountsOf>;

export type ResizableResource = "cpu" | "memory";

export function resourcesOf({ containers, initContainers = [], resources }: PodSpec): PodResources {
  const each: Record<string, Resources> = {};
  for (const container of [...initContainers, ...containers]) each[container.name] = onlyAmounts(container.resources);
  return { containers: each, ...(resources && { pod: onlyAmounts(resources) }) };
}

/** The pod with its resources replaced; the same object if they are equal. */
export function withResources(pod: Pod, { containers, pod: own }: PodResources): Pod {
  const { spec } = pod;
  const whole = sameResources(own, undefined) ? undefined : own;
  const given = (container: Container): Container => {
    const own = containers[container.name];
    if (!own || sameResources(container.resources, own)) return container;
    const { requests: _requests, limits: _limits, ...rest } = container.resources ?? {};
    return { ...container, resources: { ...rest, ...own } };
  };
  const [main, init] = [spec.containers.map(given), spec.initContainers?.map(given)];
  const unchanged =
    sameResources(spec.resources, whole) &&
    main.every((container, index) => container === spec.containers[index]) &&
    (init ?? []).every((container, index) => container === spec.initContainers?.[index]);
  if (unchanged) return pod;
  const { resources: _resources, ...rest } = spec;
  return {
    ...pod,
    spec: { ...rest, containers: main, ...(init && { initContainers: init }), ...(whole && { resources: whole }) },
  };
}

/** True if both have equal amounts, in any notation. */
export function sameResources(a: Resources | undefined, b: Resources | undefined): boolean {
  return sameQuantities(a?.requests, b?.requests) && sameQuantities(a?.limits, b?.limits);
}

/** True if all containers and the pod level have equal amounts in both. */
export function samePodResources(a: PodResources, b: PodResources): boolean {
  const names = new Set([...Object.keys(a.containers), ...Object.keys(b.containers)]);
  return (
    sameResources(a.pod, b.pod) && [...names].every((name) => sameResources(a.containers[name], b.containers[name]))
  );
}

/** CPU and memory, raised to at least those of `others`. A missing limit stays unset. */
export function raiseToAtLeast(resources: Resources, others: Resources | undefined): Resources {
  const larger = (own: string | undefined, other: string | undefined) =>
    quantityNumber(other ?? "0") > quantityNumber(own ?? "0") ? other : own;
  const { requests, limits } = resources;
  return {
    requests: { ...requests, ...pick((name) => larger(requests?.[name], others?.requests?.[name])) },
    limits: { ...limits, ...pick((name) => limits?.[name] && larger(limits[name], others?.limits?.[name])) },
  };
}

function sameQuantities(a: Resources["requests"] = {}, b: Resources["requests"] = {}): boolean {
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].every((name) => {
    const [one, other] = [a[name], b[name]];
    return one === other || (one !== undefined && other !== undefined && quantityNumber(one) === quantityNumber(other));
  });
}

/** CPU and memory to request from the runtime: a container without a limit gets the pod-level one.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification */
export function effectiveResources(own: Resources | undefined, whole: Resources | undefined): Resources {
  const limit = (name: ResizableResource) => {
    const [mine, pods] = [own?.limits?.[name], whole?.limits?.[name]];
    return quantityNumber(mine ?? "0") > 0 ? mine : (pods ?? mine);
  };
  return { requests: pick((name) => own?.requests?.[name]), limits: pick(limit) };
}

/** Takes CPU from one side and memory from the other: the actual resources after one of two changes. */
export function combineResources(cpu: Resources, memory: Resources): Resources {
  const from = { cpu, memory };
  return {
    requests: pick((name) => from[name].requests?.[name]),
    limits: pick((name) => from[name].limits?.[name]),
  };
}

/** @param resources as returned by effectiveResources. */
export function amountsOf({ requests, limits }: Resources) {
  return {
    cpuRequest: quantityMilli(requests?.["cpu"] ?? "0"),
    cpuLimit: quantityMilli(limits?.["cpu"] ?? "0"),
    memoryRequest: quantityValue(requests?.["memory"] ?? "0"),
    memoryLimit: quantityValue(limits?.["memory"] ?? "0"),
  };
}

export function sameAmounts(a: ResizableAmounts, b: ResizableAmounts): boolean {
  return (Object.keys(a) as (keyof ResizableAmounts)[]).every((name) => a[name] === b[name]);
}

/** Annotation value with a container's resources at creation. */
export function resourcesAnnotationValue({ spec }: Pod, { resources }: Container): string {
  return goJson({ ...onlyAmounts(resources), ...(spec.resources && { pod: onlyAmounts(spec.resources) }) });
}

/** Parses that annotation value; undefined if it is unreadable. */
export function parseResourcesAnnotation(note: string | undefined): { own: Resources; whole?: Resources } | undefined {
  if (note === undefined) return undefined;
  try {
    const parsed: unknown = JSON.parse(note);
    const own = readResources(parsed);
    if (!own) return undefined;
    const whole = readResources((parsed as { pod?: unknown }).pod);
    return { own, ...(whole && { whole }) };
  } catch {
    return undefined;
  }
}

/** Requests and limits from JSON; undefined for anything else. */
export function readResources(value: unknown): Resources | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { requests, limits }: { requests?: unknown; limits?: unknown } = value;
  const [requested, limited] = [readList(requests), readList(limits)];
  return { ...(requested && { requests: requested }), ...(limited && { limits: limited }) };
}

function readList(value: unknown): { [name: string]: string } | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const entries = Object.entries(value).filter((entry): entry is [string, string] => isQuantity(entry[1]));
  return Object.fromEntries(entries);
}

function isQuantity(value: unknown): boolean {
  if (typeof value !== "string") return false;
  try {
    return Number.isFinite(quantityNumber(value));
  } catch {
    return false;
  }
}

function onlyAmounts(resources: Resources | undefined): Resources {
  const { requests, limits } = resources ?? {};
  return { ...(requests && { requests }), ...(limits && { limits }) };
}

function pick(of: (name: ResizableResource) => string | undefined): { [name: string]: string } {
  const entries = (["cpu", "memory"] as const).map((name) => [name, of(name)] as const);
  return Object.fromEntries(entries.filter((entry): entry is ["cpu" | "memory", string] => entry[1] !== undefined));
}
