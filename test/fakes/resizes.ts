import { effectiveResources } from "../../src/pod/resize.ts";
import type { ResizeDecider, Resizes, ResourcesInForce } from "../../src/resizes.ts";
import { givenPod } from "../../src/roles.ts";
import type { PodGroups } from "../../src/runtime/resize.ts";

/** Nobody asks for other resources than a pod has. */
export const noResizes: Resizes & ResizeDecider = {
  allocated: givenPod,
  held: givenPod,
  inForce: (pod) => pod,
  observe: () => undefined,
  failed: () => undefined,
  take: () => undefined,
  ask: () => false,
  decide: async () => [],
};

/** What pods have been given is in force. */
export const allInForce: ResourcesInForce = {
  ofContainer: ({ spec }, { labels }) => {
    const name = labels["io.kubernetes.container.name"];
    const container = [...spec.containers, ...(spec.initContainers ?? [])].find((each) => each.name === name);
    return effectiveResources(container?.resources, spec.resources);
  },
  ofPod: ({ spec }) => spec.resources,
  setContainer: async () => undefined,
  setPod: async () => undefined,
};

/** Pods without cgroups of their own. */
export const noGroups: PodGroups = {
  wanted: () => ({}),
  isStale: () => false,
  read: async () => ({ containers: new Map() }),
  set: async () => undefined,
};
