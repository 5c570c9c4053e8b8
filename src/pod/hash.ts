import type { Container, Pod } from "../objects.ts";

/** Hash of a container's spec in lower-case hexadecimal, stored in the annotation `io.kubernetes.container.hash`: a different hash means
 *  a changed spec. Only name and image count. Equal to the kubelet's, so that a node can switch agents without restarting containers:
 *  32-bit FNV-1a over Go's print of the bytes of a JSON object. (kubelet, container/helpers.go) */
export function containerHash(container: Pick<Container, "name" | "image">): string {
  const json = goJson({ image: container.image ?? "", name: container.name });
  return fnv32a(`([]uint8)[${[...Buffer.from(json)].join(" ")}]`).toString(16);
}

/** Crash-loop back-off key of a container; a new image or new resources reset the back-off. */
export function backoffKey(pod: Pod, container: Container): string {
  const { name, namespace, uid } = pod.metadata;
  return [name, namespace, uid, container.name, container.image ?? "", JSON.stringify(container.resources ?? {})].join(
    "/",
  );
}

/** 32-bit FNV-1a of a text's UTF-8. @see http://www.isthe.com/chongo/tech/comp/fnv/ */
export function fnv32a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

/** JSON as Go's encoder writes it, with HTML characters escaped. Keys keep the order of the object. */
export function goJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
