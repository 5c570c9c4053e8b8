import type { Container, Pod } from "../objects.ts";
import { allContainers } from "../pod/containers.ts";
import { canonicalBytes, quantityValue } from "../pod/quantity.ts";
import { podLimits } from "../pod/resources.ts";

/** Exceeded local storage limit, as in metrics: of an emptyDir, of the whole pod, of a container. */
export type StorageSignal = "emptydirfs.limit" | "ephemeralpodfs.limit" | "ephemeralcontainerfs.limit";

/** A limit of disk usage. */
interface Limit {
  readonly bytes: number;
  /** The quantity as messages show it. */
  readonly text: string;
}

/** A pod's limits of disk usage; resources without a limit are absent. */
export interface StorageLimits {
  /** Limits of emptyDirs, by volume name, in the order of the spec. */
  readonly volumes: ReadonlyMap<string, Limit>;
  /** Limit of the whole pod. */
  readonly pod: Limit | undefined;
  /** Limits of init, sidecar and main containers, by name: their writable layers and logs while they run. The kubelet enforces
   *  them for main containers only. */
  readonly containers: ReadonlyMap<string, Limit>;
}

/** A pod's disk usage, bytes. Unknown values are missing. */
export interface StorageUsage {
  readonly volumes: ReadonlyMap<string, number>;
  readonly pod: number;
  readonly containers: ReadonlyMap<string, number>;
}

const resource = "ephemeral-storage";

/** A pod's limits; undefined for a pod without limits, like most pods.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#setting-requests-and-limits-for-local-ephemeral-storage */
export function storageLimits(pod: Pod): StorageLimits | undefined {
  const volumes = named((pod.spec.volumes ?? []).map(({ name, emptyDir }) => [name, emptyDir?.sizeLimit]));
  const containers = named(allContainers(pod).map(({ container }) => [container.name, limitOf(container)]));
  const total = podLimits(pod, { overhead: true })[resource];
  if (volumes.size === 0 && total === undefined) return undefined;
  return { volumes, containers, pod: total === undefined ? undefined : ofWholePod(pod, total) };
}

/** The first exceeded limit; undefined when there is none. Pure. */
export function firstExceededLimit(
  limits: StorageLimits,
  usage: StorageUsage,
): { readonly signal: StorageSignal; readonly message: string } | undefined {
  for (const [name, { bytes, text }] of limits.volumes)
    if ((usage.volumes.get(name) ?? 0) > bytes)
      return {
        signal: "emptydirfs.limit",
        message: `Usage of EmptyDir volume "${name}" exceeds the limit "${text}". `,
      };
  if (limits.pod && usage.pod > limits.pod.bytes)
    return {
      signal: "ephemeralpodfs.limit",
      message: `Pod ephemeral local storage usage exceeds the total limit of containers ${limits.pod.text}. `,
    };
  for (const [name, { bytes, text }] of limits.containers)
    if ((usage.containers.get(name) ?? 0) > bytes)
      return {
        signal: "ephemeralcontainerfs.limit",
        message: `Container ${name} exceeded its local ephemeral storage limit "${text}". `,
      };
  return undefined;
}

function limitOf({ resources }: Container): string | undefined {
  return resources?.limits?.[resource];
}

/** A limit of 0 means no limit. */
function named(limits: readonly (readonly [name: string, text: string | undefined])[]): ReadonlyMap<string, Limit> {
  return new Map(
    limits.flatMap(([name, text]) => {
      const bytes = quantityValue(text ?? "0");
      return text !== undefined && bytes > 0 ? [[name, { bytes, text }] as const] : [];
    }),
  );
}

/** Limit of a whole pod. Its text has binary suffixes (Ki, Mi) if a container's limit has one, otherwise decimal ones. @param total
 *  sum of the limits. */
function ofWholePod({ spec }: Pod, total: string): Limit {
  const parts = [...spec.containers, ...(spec.initContainers ?? [])].map(limitOf);
  const bytes = quantityValue(total);
  return { bytes, text: canonicalBytes(bytes, parts.some((part) => part?.endsWith("i")) ? 1024 : 1000) };
}
