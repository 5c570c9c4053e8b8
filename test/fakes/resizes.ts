import type { ResizeDecider, Resizes } from "../../src/sync/ports.ts";
import { effectiveResources } from "../../src/pod/pod-resources.ts";
import { allocatedPod } from "../../src/roles.ts";
import type { PodCgroupLimits } from "../../src/runtime/actuate-resources.ts";
import type { ActuatedResources } from "../../src/runtime/ports.ts";

/** Nobody asks for other resources than a pod has. */
export const noResizes: Resizes & ResizeDecider = {
  allocatedPod: allocatedPod,
  effectivePod: allocatedPod,
  actuatedPod: (pod) => pod,
  checkProgress: () => undefined,
  actuationFailed: () => undefined,
  addPod: () => undefined,
  recordRequest: () => false,
  retryPending: async () => [],
};

/** What pods have been given is in force. */
export const allInForce: ActuatedResources = {
  containerResources: ({ spec }, { labels }) => {
    const name = labels["io.kubernetes.container.name"];
    const container = [...spec.containers, ...(spec.initContainers ?? [])].find((each) => each.name === name);
    return effectiveResources(container?.resources, spec.resources);
  },
  podResources: ({ spec }) => spec.resources,
  setContainerResources: async () => undefined,
  setPodResources: async () => undefined,
};

/** Pods without cgroups of their own. */
export const noGroups: PodCgroupLimits = {
  wanted: () => ({}),
  isStale: () => false,
  read: async () => ({ containers: new Map() }),
  set: async () => undefined,
};
