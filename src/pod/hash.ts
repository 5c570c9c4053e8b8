import type { Container, Pod } from "../objects.ts";
import { goJson } from "./go-json.ts";

/** Hash of a container's spec, lower-case hexadecimal, which the runtime keeps in the annotation
 *  `io.kubernetes.container.hash`: a different hash means a changed spec. Only name and image count. Equal to the kubelet's,
 *  so that a node changes its agent without a restart: FNV-1a, 32 bits, over Go's print of the bytes of a JSON object.
 *  (kubelet, container/helpers.go) */
export function containerHash(container: Pick<Container, "name" | "image">): string {
  const json = goJson({ image: container.image ?? "", name: container.name });
  return fnv32a(`([]uint8)[${[...Buffer.from(json)].join(" ")}]`).toString(16);
}

/** One key for each container of each pod whose crash-loop back-off is counted; a new image or new resources start afresh. */
export function backoffKey(pod: Pod, container: Container): string {
  const { name, namespace, uid } = pod.metadata;
  return [name, namespace, uid, container.name, container.image ?? "", JSON.stringify(container.resources ?? {})].join(
    "/",
  );
}

/** FNV-1a, 32 bits, of a text's UTF-8. @see http://www.isthe.com/chongo/tech/comp/fnv/ */
export function fnv32a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}
