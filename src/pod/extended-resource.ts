import type { Pod } from "../objects.ts";

/** Patterns of a qualified name's parts: the name after the domain, and the domain. */
const name = /^(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$/;
const domain = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const maxDomainLength = 253;
const quotaPrefix = "requests.";
/** Prefix of the resource names that stand for a device class. */
const deviceClassPrefix = "deviceclass.resource.kubernetes.io/";

/** True for an extended resource, which is neither a native nor a quota resource.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources */
export function isExtendedResource(resource: string): boolean {
  if (resource.includes("kubernetes.io/") || resource.startsWith(quotaPrefix)) return false;
  const [of = "", own = "", ...rest] = resource.split("/");
  return (
    rest.length === 0 &&
    own.length <= 63 &&
    name.test(own) &&
    domain.test(of) &&
    of.length <= maxDomainLength - quotaPrefix.length
  );
}

/** True for a resource that a ResourceClaim can provide: an extended resource, or the implicit name of a device class.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource */
export function isClaimableResource(resource: string): boolean {
  return isExtendedResource(resource) || resource.startsWith(deviceClassPrefix);
}

/** True if the scheduler has allocated a ResourceClaim for a container's request of a resource: no device plugin provides it then, and the
 *  node does not account for it. */
export function isProvidedByClaim({ status }: Pick<Pod, "status">, containerName: string, resource: string): boolean {
  const mappings = status?.extendedResourceClaimStatus?.requestMappings ?? [];
  return mappings.some((mapping) => mapping.containerName === containerName && mapping.resourceName === resource);
}
