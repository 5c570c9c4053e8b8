import type { Measures } from "../../src/measures.ts";

const nothing = () => undefined;

/** Nobody measures anything. */
export const unmeasured: Measures = {
  runtime: { called: nothing, sandboxRun: nothing },
  requests: { answered: nothing },
  pleg: {
    relistStarted: nothing,
    relisted: nothing,
    inspected: nothing,
    eventStreamOpened: nothing,
    eventStreamFailed: nothing,
  },
  workers: { started: nothing, synced: nothing },
  starts: {
    podStarting: nothing,
    podFailed: nothing,
    containerStarting: nothing,
    containerFailed: nothing,
    imageVolumes: nothing,
  },
  pulls: { pulling: () => nothing, ensured: nothing, checked: nothing, pluginRan: nothing },
  nodeStart: { booted: nothing, registering: nothing, registered: nothing, ready: nothing },
  devices: { registering: nothing, allocated: nothing },
  podResources: { requested: nothing, failed: nothing },
  statuses: { changed: nothing, written: nothing },
  volumes: {
    setUp: nothing,
    mapped: nothing,
    expanded: nothing,
    tornDown: nothing,
    unmapped: nothing,
    deviceUnmapped: nothing,
  },
  drivers: { called: nothing },
  cgroups: { changed: nothing, memoryReserved: nothing, runtimeOutdated: nothing },
  resizes: { requested: nothing, infeasible: nothing, accepted: nothing, actuated: nothing },
  evictions: { evicted: nothing, observationAge: nothing },
  imageRemovals: { removed: nothing },
  shutdowns: { began: nothing, ended: nothing },
  certificates: {
    client: { failed: nothing, replaced: nothing },
    server: { failed: nothing, replaced: nothing },
  },
  probes: { probed: nothing, forget: nothing },
  serving: { began: () => nothing },
  health: { checked: nothing },
  seen: nothing,
  forget: nothing,
  rejected: nothing,
  preempted: nothing,
  orphanFound: nothing,
  cleanedUp: nothing,
};
