/** Patterns of a qualified name's parts: the name after the domain, and the domain. */
const name = /^(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$/;
const domain = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const maxDomainLength = 253;
const quotaPrefix = "requests.";

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
