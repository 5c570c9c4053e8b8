import type { Pod, PodSpec } from "../../../src/objects.ts";

/** A pod with one container, with overrides. */
export function pod(name: string, spec: Partial<PodSpec> = {}, metadata: Partial<Pod["metadata"]> = {}): Pod {
  return {
    metadata: { name, namespace: "ns", uid: `${name}-uid`, ...metadata },
    spec: { containers: [{ name: "main", image: "image" }], ...spec },
  };
}
