import { createPulledImages } from "../gc/pulled-images.ts";
import { isRestartingAll } from "../pod/restart-all.ts";
import type { PodRuntime } from "../sync/ports.ts";
import type { StatusManager } from "../status/manager.ts";
import type { DaemonSetPolicy } from "../node/daemon-set-policy.ts";
import type { Probes } from "../probes/probes.ts";
import { createCrashLoop } from "../runtime/crash-loop.ts";
import { createHandlerFeatures } from "../runtime/handler-features.ts";
import { createHooks } from "../runtime/hooks.ts";
import { createPluginRunner } from "../runtime/images/credential-plugin.ts";
import { createNodeKeyring } from "../runtime/images/node-keyring.ts";
import { createPluginKeyring } from "../runtime/images/plugin-keyring.ts";
import type { PodKeyring } from "../runtime/images/pod-credentials.ts";
import { createPullManager } from "../runtime/images/pull-manager.ts";
import { createPullRecords } from "../runtime/images/pull-records.ts";
import { type ImagePuller, type ImagePullerDeps, createImagePuller } from "../runtime/images/puller.ts";
import { ensureImages } from "../runtime/images/ensure-images.ts";
import { verificationBy } from "../runtime/images/verification-policy.ts";
import { createPodRuntime } from "../runtime/pod-runtime.ts";
import { type PodSettings, type Preparer, createPreparer } from "../runtime/configure-container.ts";
import { createSandboxPacing } from "../runtime/sandbox-pacing.ts";
import { createUserNamespaces } from "../runtime/user-namespace.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { CgroupManagers, PodAllocation } from "./resources.ts";
import { verificationSettings } from "./settings.ts";

export type ImageRecords = ReturnType<typeof createImageRecords>;

/** Creates the records of pulled images and of the credentials used. */
export function createImageRecords({ config, target, metrics, clock, log }: NodeContext) {
  const { host, runtime, sharing } = target;
  const { rootDir } = config;
  const verification = verificationSettings(config);
  return {
    /** Images pulled by this node; undefined unless the runtime is shared. */
    pulled: sharing === "shared" ? createPulledImages({ runtime, fs: host.fs, rootDir, clock, log }) : undefined,
    /** Verifies that pods may use an image that is present already; undefined if verification is off. */
    pullManager:
      verification &&
      createPullManager({
        runtime,
        records: createPullRecords(host.fs, rootDir),
        needsVerification: verificationBy(verification),
        measures: metrics.measures.pulls,
        clock,
        log,
      }),
  };
}

/** Components that pod workers use. */
export interface PodStages {
  readonly statuses: StatusManager;
  readonly allocation: PodAllocation;
  readonly probes: Probes;
  readonly daemonSets: DaemonSetPolicy;
  readonly volumes: Volumes;
  readonly images: ImageRecords;
  readonly cgroups: CgroupManagers;
  readonly podRuntime: PodRuntime;
}

type PodRuntimeParts = Omit<PodStages, "podRuntime"> & { readonly settings: PodSettings };

/** Creates the runtime of pods: pulls images, and creates sandboxes and containers. */
export function createNodePodRuntime(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  parts: PodRuntimeParts,
): PodRuntime {
  const { config, target, metrics, clock, partsOf } = context;
  const { events, runtimeClasses } = cluster;
  const { targetClock, serviceTunnel, managers } = observed;
  const { allocation, probes, volumes, cgroups } = parts;
  const { measures } = metrics;
  const { host, runtime } = target;
  const { status, ...actorParts } = partsOf("podRuntime");
  const { maxContainerRestartPeriod: maxMs } = config.kubelet.crashLoopBackOff;
  const images = parts.images.pulled?.images ?? runtime;
  const preparer = createNodePreparer(context, cluster, observed, parts, images);
  const puller = createNodeImagePuller(context, cluster, parts.images, images);
  return createPodRuntime({
    ...actorParts,
    ...preparer,
    runtime,
    runtimeClasses,
    withStableFiles: volumes.withStableFiles,
    probes,
    isRestartingAll: (uid) => isRestartingAll(status.get(uid)),
    hooks: createHooks({ host, runtime, events, measures: measures.hooks, clock }),
    tunnel: serviceTunnel,
    actuatedResources: allocation.allocations,
    groups: cgroups.hostResources.groups,
    managers,
    paceSandbox: createSandboxPacing({ clock, cpus: observed.agent.facts.cpus }),
    uninterrupted: new AbortController().signal,
    crashLoop: createCrashLoop({ clock, targetClock, events, maxMs }),
    findPresentImage: puller.findPresent,
    ensureImages: (start, signal) => ensureImages(puller, start, signal),
    events,
    measures: measures.starts,
    resizes: measures.resizes,
  });
}

/** Creates the builder of sandbox and container configurations. */
function createNodePreparer(
  { target, clock, log }: NodeContext,
  { objects, services, runtimeClasses, events }: Cluster,
  { agent, managers, podIds, cgroups, health }: ObservedTarget,
  { settings, volumes, allocation }: PodRuntimeParts,
  images: ImagePullerDeps["images"],
): Preparer {
  return createPreparer({
    settings,
    fs: target.host.fs,
    images,
    objects,
    services,
    addresses: agent,
    volumes,
    managers,
    handlerFeatures: createHandlerFeatures(runtimeClasses, health.handlers),
    userNamespace: createUserNamespaces({ runtimeClasses, handlers: health.handlers, ids: podIds }),
    facts: allocation.facts,
    cgroups: cgroups.layout,
    allocatable: agent.allocatable,
    events,
    clock,
    log,
  });
}

function createNodeImagePuller(
  context: NodeContext,
  cluster: Cluster,
  { pullManager }: ImageRecords,
  images: ImagePullerDeps["images"],
): ImagePuller {
  const { config, metrics, clock, log } = context;
  const { objects, events } = cluster;
  const { kubelet } = config;
  return createImagePuller({
    images,
    objects,
    events,
    keyrings: nodeKeyrings(context, cluster),
    pullManager,
    serialize: kubelet.serializeImagePulls,
    maxParallel: kubelet.maxParallelImagePulls,
    qps: kubelet.registryPullQPS,
    burst: kubelet.registryBurst,
    measures: metrics.measures.pulls,
    clock,
    log,
  });
}

/** Creates the keyrings on graftlet's own machine: the node's own credentials, and those of credential provider plugins. */
function nodeKeyrings(context: NodeContext, { accounts, tokens }: Cluster): readonly PodKeyring[] {
  const { config, metrics, signal, clock, log, readOwnFile: readFile } = context;
  const { rootDir, credentialProviders } = config;
  const own = createNodeKeyring({ rootDir, workingDir: ".", home: process.env["HOME"], readFile, clock, log });
  if (!credentialProviders) return [own];
  const run = createPluginRunner({ measures: metrics.measures.pulls, clock, stop: signal });
  return [own, createPluginKeyring({ plugins: credentialProviders.providers, run, accounts, tokens, clock, log })];
}
