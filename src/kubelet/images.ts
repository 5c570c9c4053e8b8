import { type PulledImages, createPulledImages } from "../gc/pulled-images.ts";
import { createPluginRunner } from "../runtime/images/credential-plugin.ts";
import { createNodeKeyring } from "../runtime/images/node-keyring.ts";
import { createPluginKeyring } from "../runtime/images/plugin-keyring.ts";
import type { PodKeyring } from "../runtime/images/pod-credentials.ts";
import { type PullManager, createPullManager } from "../runtime/images/pull-manager.ts";
import { createPullRecords } from "../runtime/images/pull-records.ts";
import type { ImagePullerDeps } from "../runtime/images/puller.ts";
import { verificationBy } from "../runtime/images/verification-policy.ts";
import type { Cluster, NodeContext } from "./deps.ts";
import { verificationSettings } from "./settings.ts";

/** Records of pulled images. */
export interface ImageRecords {
  /** Images pulled by this node; set if the runtime is shared. */
  readonly pulled?: PulledImages;
  /** Verifies that pods may use an image that is present already; undefined if verification is off. */
  readonly pullManager?: PullManager;
}

/** Creates the records of pulled images and of the credentials used. */
export function createImageRecords({ config, target, metrics, clock, log }: NodeContext): ImageRecords {
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

/** Dependencies of the image puller. */
export function pullDeps(
  context: NodeContext,
  cluster: Cluster,
  { pullManager }: ImageRecords,
): Pick<ImagePullerDeps, "measures" | "keyrings" | "pullManager" | "serialize" | "maxParallel" | "qps" | "burst"> {
  const { kubelet } = context.config;
  return {
    measures: context.metrics.measures.pulls,
    keyrings: nodeKeyrings(context, cluster),
    ...(pullManager && { pullManager }),
    serialize: kubelet.serializeImagePulls,
    maxParallel: kubelet.maxParallelImagePulls,
    qps: kubelet.registryPullQPS,
    burst: kubelet.registryBurst,
  };
}

/** Credentials on graftlet's own machine: the node's own, and those of credential provider plugins. */
function nodeKeyrings(context: NodeContext, cluster: Cluster): readonly PodKeyring[] {
  const { config, metrics, signal, clock, log, readOwnFile: readFile } = context;
  const { rootDir, credentialProviders } = config;
  const place = { rootDir, workingDir: ".", home: process.env["HOME"], readFile };
  const own = createNodeKeyring({ ...place, clock, log });
  if (!credentialProviders) return [own];
  const { accounts, tokens } = cluster;
  const run = createPluginRunner({ measures: metrics.measures.pulls, clock, stop: signal });
  const { providers: plugins } = credentialProviders;
  return [own, createPluginKeyring({ plugins, run, accounts, tokens, clock, log })];
}
