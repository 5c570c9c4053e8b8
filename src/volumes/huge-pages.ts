import { CodedError } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { quantityValue } from "../pod/quantity.ts";

const anySize = "HugePages";
const mediumPrefix = `${anySize}-`;
const resourcePrefix = "hugepages-";

/** True for an emptyDir backed by huge pages, either of an explicit size or of the size that the pod requests. */
export function isHugePages(medium: string): boolean {
  return medium === anySize || medium.startsWith(mediumPrefix);
}

/** Page size of an emptyDir backed by huge pages, bytes. A medium without a size takes the size from the requests of the pod and
 *  its containers, which must agree.
 *  @throws CodedError invalid_argument, in the kubelet's words.
 *  @see https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/ */
export function pageBytes(medium: string, { spec }: Pod): number {
  const asked = [spec, ...spec.containers, ...(spec.initContainers ?? [])].flatMap(({ resources }) =>
    Object.keys(resources?.requests ?? {}).filter((name) => name.startsWith(resourcePrefix)),
  );
  const sizes = new Set(asked.map((name) => quantityValue(name.slice(resourcePrefix.length))));
  if (medium === anySize && sizes.size > 1)
    throw invalidMedium(`medium: ${medium} can't be used if container requests multiple huge page sizes`);
  const [only] = sizes;
  const wanted = medium === anySize ? only : quantityValue(medium.slice(mediumPrefix.length));
  if (wanted !== undefined && sizes.has(wanted)) return wanted;
  throw invalidMedium(`medium ${medium}: hugePages storage requested, but there is no resource request for huge pages`);
}

function invalidMedium(message: string): CodedError {
  return new CodedError("invalid_argument", message);
}
