import type { Pod } from "../objects.ts";
import type { UnsupportedField } from "./field-decisions.ts";

/** Extended resources of a pod that the scheduler took from a ResourceClaim: the spec does not say so, and no device plugin provides
 *  them. Pure.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource */
export function claimedResources({ spec, status }: Pod): readonly UnsupportedField[] {
  const mappings = status?.extendedResourceClaimStatus?.requestMappings ?? [];
  const lists = [
    ["spec.initContainers", spec.initContainers ?? []],
    ["spec.containers", spec.containers],
  ] as const;
  const why = "it comes from a ResourceClaim, and dynamic resource allocation is not supported yet";
  return mappings.map(({ containerName, resourceName }) => {
    const [place] = lists.flatMap(([list, containers]) => {
      const at = containers.findIndex(({ name }) => name === containerName);
      return at < 0 ? [] : [`${list}[${at}]`];
    });
    return {
      field: `${place ?? `status.extendedResourceClaimStatus.${containerName}`}.resources.requests[${resourceName}]`,
      why,
    };
  });
}
