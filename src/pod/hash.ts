import type { Container, Pod } from "../objects.ts";

const offset32 = 0x811c9dc5;
const prime32 = 0x01000193;

/** FNV-1a with 32 bits. @see https://www.rfc-editor.org/rfc/rfc9923 */
function fnv1a32(bytes: Uint8Array): number {
  let hash = offset32;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, prime32) >>> 0;
  return hash;
}

/** A container's hash as kubelets write it in the annotation io.kubernetes.container.hash: a container whose hash differs from
 *  its spec's is replaced, so it has to be the kubelet's own, byte for byte. Only name and image count.
 *  It is FNV-1a, 32 bits, in hexadecimal without leading zeros, over Go's printed form of the bytes of the JSON text. */
export function containerHash({ name, image }: Pick<Container, "name" | "image">): string {
  const json = goJson({ ...(image && { image }), name });
  const printed = `([]uint8)[${[...Buffer.from(json)].join(" ")}]`;
  return fnv1a32(Buffer.from(printed)).toString(16);
}

/** JSON as Go writes it: HTML's special characters and the line separators of JavaScript are escaped. */
function goJson(value: object): string {
  const escapes: Readonly<Record<string, string>> = { "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029" };
  return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (character) => escapes[character] ?? character);
}

/** What a container's restart back-off is kept under: another image or other resources start afresh. */
export function backoffKey(pod: Pod, container: Container): string {
  const { name, namespace, uid } = pod.metadata;
  return JSON.stringify([name, namespace, uid, container.name, container.image ?? "", container.resources ?? {}]);
}
