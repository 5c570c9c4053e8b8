import { type PulledImages, createPulledImages } from "../gc/pulled-images.ts";
import { runPlugins } from "../runtime/images/credential-plugin.ts";
import { createNodeKeyring } from "../runtime/images/node-keyring.ts";
import { createPluginKeyring } from "../runtime/images/plugin-keyring.ts";
import type { PodKeyring } from "../runtime/images/pod-credentials.ts";
import { type PullManager, createPullManager } from "../runtime/images/pull-manager.ts";
import { createPullRecords } from "../runtime/images/pull-records.ts";
import type { ImagePullerDeps } from "../runtime/images/puller.ts";
import { verificationBy } from "../runtime/images/verification-policy.ts";
import type { Cluster, NodeContext } from "./deps.ts";
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
  context: NodeContext,
  cluster: Cluster,
  { pullManager }: OwnImages,
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

/** Credentials on the machine that graftlet runs on: the node's own, and those that programs tell. */
function nodeKeyrings(context: NodeContext, cluster: Cluster): readonly PodKeyring[] {
  const { config, metrics, signal, clock, log, readOwnFile: readFile } = context;
  const { rootDir, credentialProviders } = config;
  const place = { rootDir, workingDir: ".", home: process.env["HOME"], readFile };
  const own = createNodeKeyring({ ...place, clock, log });
  if (!credentialProviders) return [own];
  const { accounts, tokens } = cluster;
  const run = runPlugins({ measures: metrics.measures.pulls, clock, stop: signal });
  const { providers: plugins } = credentialProviders;
  return [own, createPluginKeyring({ plugins, run, accounts, tokens, clock, log })];
}
