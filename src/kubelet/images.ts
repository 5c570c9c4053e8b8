import { type PulledImages, createPulledImages } from "../gc/pulled-images.ts";
import { type PullManager, createPullManager } from "../runtime/images/pull-manager.ts";
import { createPullRecords } from "../runtime/images/pull-records.ts";
import type { ImagePullerDeps } from "../runtime/images/puller.ts";
import { verificationBy } from "../runtime/images/verification-policy.ts";
import type { NodeContext } from "./deps.ts";
import { verificationSettings } from "./settings.ts";

/** Records of images. */
export interface OwnImages {
  /** Images that this node pulled, where others use the runtime too. */
  readonly pulled?: PulledImages;
  /** Decisions on who may use which image; undefined where nobody is asked. */
  readonly pullManager?: PullManager;
}

/** Puts on record what the node pulls, and for whom. */
export function recordImages({ config, target, metrics, clock, log }: NodeContext): OwnImages {
  const { host, runtime, sharing } = target;
  const { rootDir } = config;
  const verification = verificationSettings(config);
  const common = { runtime, clock, log };
  return {
    ...(sharing === "shared" && { pulled: createPulledImages({ ...common, fs: host.fs, rootDir }) }),
    ...(verification && {
      pullManager: createPullManager({
        ...common,
        records: createPullRecords(host.fs, rootDir),
        needsVerification: verificationBy(verification),
        measures: metrics.measures.pulls,
      }),
    }),
  };
}

/** How images are pulled. */
export function pullDeps(
  { config: { kubelet }, metrics }: NodeContext,
  { pullManager }: OwnImages,
): Pick<ImagePullerDeps, "measures" | "pullManager" | "serialize" | "maxParallel" | "qps" | "burst"> {
  return {
    measures: metrics.measures.pulls,
    ...(pullManager && { pullManager }),
    serialize: kubelet.serializeImagePulls,
    maxParallel: kubelet.maxParallelImagePulls,
    qps: kubelet.registryPullQPS,
    burst: kubelet.registryBurst,
  };
}
