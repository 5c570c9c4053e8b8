import type { Cluster, KubeletDeps, Observed } from "./kubelet.ts";
import { type AdmissionOf, composeAdmission } from "./admission.ts";
import { type PatrolOptions, patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Admission, PodStore } from "../pipeline.ts";
import type { ResizeTrigger } from "../resizes.ts";
import { type Allocations, createAllocations } from "../resources/allocations.ts";
import { createResizes, type ResizesDeps } from "../resources/resizes.ts";

/** The kubelet's, milliseconds. */
const firstRetryMs = 30_000;
const retryMs = 180_000;

export interface ResizeStages {
  readonly admission: Admission;
  readonly allocations: Allocations;
  readonly resizes: ReturnType<typeof createResizes>;
}

/** What pods may have of the node: whether they may run there, what they have been given, and whether they may have something else. */
export function composeResizes(
  deps: KubeletDeps,
  cluster: Cluster,
  observed: Observed,
  of: AdmissionOf & { readonly pods: PodStore } & Pick<ResizesDeps, "sourcesSpoke" | "onFreed">,
): ResizeStages {
  const { config, target, metrics, clock, log } = deps;
  const { rootDir } = config;
  const admission = composeAdmission(deps, cluster, observed, of);
  const allocations = createAllocations({ fs: target.host.fs, rootDir, cache: observed.pleg.cache, clock, log });
  const resizes = createResizes({
    ...of,
    allocations,
    admission,
    events: cluster.events,
    measures: metrics.measures.resizes,
    clock,
    log,
  });
  return { admission, allocations, resizes };
}

/** What is pending is decided anew from time to time, whatever else happens. */
export function retryResizes(
  decide: (trigger: ResizeTrigger) => void,
  so: Pick<PatrolOptions, "clock" | "log">,
): Service {
  const options = { ...so, name: "resizes", everyMs: retryMs, firstMs: firstRetryMs };
  return patrol(options, () => decide("periodic_retry"));
}
