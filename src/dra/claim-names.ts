import type { Container, Pod, ResourceClaim } from "../objects.ts";
import { isClaimableResource } from "../pod/extended-resource.ts";
import { quantityNumber } from "../pod/quantity.ts";

export interface PodClaim {
  /** Name of the claim in the pod's spec; undefined for the claim that the scheduler created for the pod's extended resources. */
  readonly podClaimName: string | undefined;
  /** Name of the ResourceClaim object. */
  readonly name: string;
  /** True for a claim created from a template: the pod must own it. */
  readonly fromTemplate: boolean;
}

/** Claims of a pod that need preparation. A claim that was intentionally not created is left out.
 *  @throws Error in the kubelet's words if a claim does not exist yet. (dynamic-resource-allocation, resourceclaim.go)
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/ */
export function claimsOf({ metadata: { namespace, name }, spec, status }: Pod): readonly PodClaim[] {
  const pod = JSON.stringify(`${namespace}/${name}`);
  const named = (spec.resourceClaims ?? []).flatMap((claim): PodClaim[] => {
    const podClaimName = claim.name;
    if (claim.resourceClaimName) return [{ podClaimName, name: claim.resourceClaimName, fromTemplate: false }];
    if (!claim.resourceClaimTemplateName)
      throw new Error(
        `pod ${pod}, spec.resourceClaim ${JSON.stringify(podClaimName)}: none of the supported fields are set`,
      );
    const created = status?.resourceClaimStatuses?.find((one) => one.name === podClaimName);
    if (!created) throw new Error(`pod ${pod}: ResourceClaim not created yet`);
    return created.resourceClaimName ? [{ podClaimName, name: created.resourceClaimName, fromTemplate: true }] : [];
  });
  const extended = status?.extendedResourceClaimStatus?.resourceClaimName;
  return extended ? [...named, { podClaimName: undefined, name: extended, fromTemplate: false }] : named;
}

/** A container's use of a ResourceClaim. */
export interface ClaimUse extends Pick<PodClaim, "podClaimName" | "name"> {
  /** Request of the claim; empty for all of its devices. */
  readonly request: string;
}

/** The claims that a container uses, request by request. @throws as `claimsOf` does. */
export function claimUsesOf(pod: Pod, container: Container): readonly ClaimUse[] {
  const uses = container.resources?.claims ?? [];
  const extended = pod.status?.extendedResourceClaimStatus;
  if (uses.length === 0 && !extended) return [];
  return claimsOf(pod).flatMap(({ podClaimName, name }): ClaimUse[] => {
    if (podClaimName !== undefined)
      return uses
        .filter((use) => use.name === podClaimName)
        .map(({ request = "" }) => ({ podClaimName, name, request }));
    const mappings = extended?.requestMappings ?? [];
    return mappings
      .filter((mapping) => mapping.containerName === container.name && requests(container, mapping.resourceName))
      .map(({ requestName }) => ({ podClaimName, name, request: requestName }));
  });
}

/** True if a container requests some of an extended resource that a ResourceClaim may provide. */
function requests({ resources }: Container, resource: string): boolean {
  const amount = resources?.requests?.[resource];
  if (amount === undefined || quantityNumber(amount) === 0) return false;
  return isClaimableResource(resource);
}

/** Checks that a pod may use a claim. @throws Error in the kubelet's words. */
export function checkUse(
  { metadata: { namespace, name, uid } }: Pod,
  { fromTemplate }: Pick<PodClaim, "fromTemplate">,
  claim: ResourceClaim,
): void {
  const { metadata, status } = claim;
  const isOwner = metadata.ownerReferences?.some((owner) => owner.controller === true && owner.uid === uid);
  if (fromTemplate && !isOwner)
    throw new Error(
      `ResourceClaim ${metadata.namespace}/${metadata.name} was not created for Pod ${namespace}/${name} (Pod is not owner)`,
    );
  if (!status?.reservedFor?.some((consumer) => consumer.uid === uid))
    throw new Error(`pod ${name} (${uid}) is not allowed to use ResourceClaim ${metadata.name} (${metadata.uid})`);
}
