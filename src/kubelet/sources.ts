import { rfc3339 } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Pod } from "../objects.ts";
import type { PodUpdate, SourceName } from "../pipeline.ts";
import { adoptRunning } from "../sources/adoption.ts";
import { createApiServerSource } from "../sources/apiserver.ts";
import { createFileSource } from "../sources/file.ts";
import { createHttpSource } from "../sources/http.ts";
import { createManifestErrors } from "../sources/manifest-errors.ts";
import type { Adopt } from "../sources/manifest-set.ts";
import { createPodConfig } from "../sources/pod-config.ts";
import { createPodApi } from "../status/pod-api.ts";
import { createMirrorPods } from "../sync/mirror-pods.ts";
import type { PodManager } from "../sync/pod-manager.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";
import { type SyncLoop, createSyncLoop } from "../sync/sync-loop.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { PodStages } from "./runtime.ts";

/** The consumers of pods from the sources. */
interface PodSourcesParts extends PodStages {
  readonly manager: PodManager;
  readonly workers: PodWorkers;
}

export type PodSources = ReturnType<typeof createPodSources>;

/** Creates the sync loop, the configured pod sources, and the mirror pods of static pods. */
export function createPodSources(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  parts: PodSourcesParts,
) {
  const { standalone, client, partsOf } = context;
  const syncLoop = createNodeSyncLoop(context, cluster, observed, parts);
  const sources = createConfiguredSources(context, cluster, syncLoop.push);
  const mirrorParts = partsOf("mirrorPods");
  const { sourcesReady } = mirrorParts;
  /** True once every source has reported, and all updates have been handled. */
  const allSourcesReady = () => sourcesReady.all() && syncLoop.isIdle();
  const mirrors = createMirrorPods({
    ...mirrorParts,
    manager: parts.manager,
    api: createPodApi(client),
    node: cluster.nodes,
    allSourcesReady,
    requeue: syncLoop.requeueMirrorSync,
  });
  const hasStatic = !standalone && sourcesReady.names.some((name) => name !== "api");
  return { syncLoop, allSourcesReady, running: [syncLoop, ...sources, ...(hasStatic ? [mirrors] : [])] };
}

function createNodeSyncLoop(
  { metrics, clock, partsOf }: NodeContext,
  { events }: Cluster,
  { health, managers }: ObservedTarget,
  { manager, workers, allocation, daemonSets, statuses }: PodSourcesParts,
): SyncLoop {
  return createSyncLoop({
    ...partsOf("syncLoop"),
    manager,
    workers,
    admission: allocation.admission,
    resizes: allocation.resizes,
    managers,
    isPlaceholder: daemonSets.isPlaceholder,
    runtimeErrors: health.runtimeErrors,
    statuses,
    events,
    measures: metrics.measures,
    nowText: () => rfc3339(clock.now()),
  });
}

/** Creates the configured pod sources of a node. Each reports its complete set of pods, and none removes pods of another source. */
function createConfiguredSources(
  { config, client, standalone, clock, log, partsOf }: NodeContext,
  { events, nodes }: Cluster,
  emit: (update: PodUpdate) => void,
): readonly Runnable[] {
  const { kubelet, nodeName } = config;
  const { podCache, sourcesReady } = partsOf("sources");
  const podConfig = createPodConfig({ sourcesReady, emit, events, clock });
  const setterOf = (source: SourceName) => (pods: readonly Pod[]) => podConfig.set(source, pods);
  const adopt: Adopt = (found) => adoptRunning(podCache, found);
  const newManifestErrors = () => createManifestErrors({ nodeName, events, log });
  const { staticPodPath: path, staticPodURL: url, staticPodURLHeader: headers } = kubelet;
  const { fileCheckFrequency, httpCheckFrequency } = kubelet;
  const running: Runnable[] = [];
  if (path) {
    const [set, complaints] = [setterOf("file"), newManifestErrors()];
    running.push(createFileSource({ nodeName, path, everyMs: fileCheckFrequency, set, adopt, complaints, clock }));
  }
  if (url) {
    const [set, complaints] = [setterOf("http"), newManifestErrors()];
    const everyMs = httpCheckFrequency;
    running.push(createHttpSource({ nodeName, url, headers, everyMs, set, adopt, complaints, clock, log }));
  }
  if (!standalone)
    running.push(createApiServerSource({ nodeName, client, set: setterOf("api"), after: nodes.ready, clock, log }));
  return running;
}
