import { messageOf } from "../lib/errors.ts";
import { isRecord } from "../lib/record.ts";
import { expectKind, manifestObject, unusable } from "./manifest.ts";
import type { Fields } from "./pod-fields.ts";
import { type Origin, type StaticPod, staticPod } from "./static-pod.ts";

export interface Manifest {
  readonly text: string;
  readonly origin: Origin;
  /** A PodList is accepted instead of one pod. */
  readonly lists: boolean;
}

/** The pods of a manifest. One invalid pod invalidates the list, because the intent of the others is uncertain. Pure. @throws CodedError
 *  invalid_argument, a sentence. */
export function manifestPods({ text, origin, lists }: Manifest): readonly StaticPod[] {
  const object = manifestObject(text);
  if (lists && object["kind"] === "PodList") return listedPods(object, origin);
  expectKind(object, "Pod");
  return [staticPod(object, origin)];
}

function listedPods(object: Fields, origin: Origin): readonly StaticPod[] {
  expectKind(object, "PodList");
  const items = object["items"] ?? [];
  if (!Array.isArray(items)) throw unusable("items of its PodList is not a list");
  const uids = new Set<string>();
  const pods = items.map((item: unknown, index) => {
    if (!isRecord(item)) throw unusable(`items[${index}] of its PodList is not a pod`);
    try {
      return staticPod(item, origin);
    } catch (cause) {
      throw unusable(`items[${index}] of its PodList: ${messageOf(cause)}`, { cause });
    }
  });
  for (const [index, { pod }] of pods.entries()) {
    if (uids.has(pod.metadata.uid))
      throw unusable(`items[${index}] of its PodList: metadata.uid: another of its pods has it too`);
    uids.add(pod.metadata.uid);
  }
  return pods;
}
