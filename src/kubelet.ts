import { createAdmission } from "./admission/chain.ts";
import { createServed } from "./admission/served.ts";
import type { ApiClient } from "./api/client.ts";
import { createEventRecorder } from "./api/events.ts";
import { createNodeWatch, createServiceLister } from "./api/listers.ts";
import { createObjectCaches } from "./api/objects.ts";
import { createTokenSource } from "./api/tokens.ts";
import type { NodeConfig } from "./config/node-config.ts";
import { createGarbage } from "./gc/garbage.ts";
import { ContainerState } from "./gen/cri.ts";
import { composeRuntime } from "./kubelet-runtime.ts";
import { composeServer } from "./kubelet-server.ts";
import type { Clock } from "./lib/clock.ts";
import type { Logger } from "./lib/log.ts";
import { rfc3339 } from "./lib/rfc3339.ts";
import { type Service, onAbort, runGroup } from "./lib/service-group.ts";
import { createNodeAgent } from "./node/node-agent.ts";
import { createRuntimeHealth } from "./node/runtime-health.ts";
import { nodeSettings } from "./node-setup.ts";
import type { Node, Pod, PodStatus } from "./objects.ts";
import type { RuntimePod, Waker } from "./pipeline.ts";
import { createPleg } from "./pleg/pleg.ts";
import { nodeLabel } from "./pod/labels.ts";
import { generateStatus } from "./pod/status.ts";
import { createProbes } from "./probes/probes.ts";
import { createLogReader } from "./runtime/logs/reader.ts";
import { readTerminationMessage } from "./runtime/termination-message.ts";
import type { Target } from "./seams/provider.ts";
import { createApiServerSource } from "./sources/apiserver.ts";
import { createPodConfig } from "./sources/pod-config.ts";
import { createStatusManager } from "./status/manager.ts";
import { createPodApi } from "./status/pod-api.ts";
import { createHousekeeping } from "./sync/housekeeping.ts";
import { createPasses } from "./sync/passes.ts";
import { createPodManager } from "./sync/pod-manager.ts";
import { createPodWorkers } from "./sync/pod-workers.ts";
import { createSyncLoop } from "./sync/sync-loop.ts";

export interface KubeletDeps {
  readonly config: NodeConfig;
  readonly target: Target;
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Where log collectors look for links to container logs, on the target. */
const containerLogsDir = "/var/log/containers";
/** How long a stopping node waits for calls to the runtime that are under way, milliseconds. */
const drainMs = 20_000;

/** Runs one node until the signal aborts: builds every stage in the order of the pipeline, hands each what it asks of the
 *  others, and starts them. Pods stay as they are when it ends.
 *  @throws the first failure of a service, such as a port that is taken, in one sentence. */
export async function runKubelet(deps: KubeletDeps, signal: AbortSignal): Promise<void> {
  const cluster = observeCluster(deps);
  const waker: Waker = { wake: (uid, cause) => sync.workers.wake(uid, cause) };
  const target = await observeTarget(deps, cluster, waker, signal);
  const sync = composeSync(deps, cluster, target, waker);
  const { pods, statuses } = sync;
  const server = await composeServer({
    ...deps,
    ...target,
    runtime: deps.target.runtime,
    addresses: target.agent,
    pods,
    statuses,
  });
  await runGroup([...server, ...cluster.running, ...target.running, ...sync.running], signal);
}

/** What the cluster says: this node's object, services, the objects that pods refer to; and where events go. */
function observeCluster({ config, client, clock, log }: KubeletDeps) {
  const { kubelet, nodeName } = config;
  const common = { client, clock, log };
  const events = createEventRecorder({
    ...common,
    component: "kubelet",
    host: nodeName,
    qps: kubelet.eventRecordQPS,
    burst: kubelet.eventBurst,
  });
  const nodes = createNodeWatch({ ...common, nodeName });
  const services = createServiceLister(common);
  const objects = createObjectCaches(common);
  const tokens = createTokenSource(common);
  const running: readonly Service[] = [events, nodes, services, objects, tokens];
  return { events, nodes, services, objects, tokens, running };
}

type Cluster = ReturnType<typeof observeCluster>;

/** What the target shows: its pods, its logs, its health; and the Node that tells the cluster of it. */
async function observeTarget(
  { config, target, client, clock, log }: KubeletDeps,
  { events, nodes }: Cluster,
  waker: Waker,
  signal: AbortSignal,
) {
  const { host, runtime, sharing } = target;
  const ownerLabels: Record<string, string> = sharing === "shared" ? { [nodeLabel]: config.nodeName } : {};
  const isRunning = async (id: string, stop: AbortSignal) =>
    (await runtime.containerStatus(id, stop)).status?.state === ContainerState.CONTAINER_RUNNING;
  const logs = createLogReader({ host, clock, log, roots: [config.kubelet.podLogsDir], isRunning });
  const pleg = createPleg({
    runtime,
    clock,
    log,
    ownerLabels,
    waker,
    terminationMessage: (status, stop) => readTerminationMessage({ fs: host.fs, logs }, status, stop),
  });
  const health = createRuntimeHealth({ runtime, clock, log, onChange: () => agent.hurry() });
  const problems = () => [pleg.unhealthy()].filter((problem) => problem !== undefined);
  const agent = await createNodeAgent(
    {
      settings: nodeSettings(config),
      client,
      nodes,
      host,
      images: runtime,
      runtime: health,
      problems,
      events,
      clock,
      log,
    },
    signal,
  );
  // A Node that somebody deletes is registered again at once.
  nodes.onChange((node) => node ?? agent.hurry());
  // Pods are taken in once the runtime has shown what it holds and said its name, which is part of containers' IDs.
  const shown: Service = {
    ...pleg,
    ready: async (stop) => void (await Promise.all([pleg.ready(stop), health.answered(stop)])),
  };
  const running: readonly Service[] = [health, ...agent.services, shown];
  return { ownerLabels, logs, pleg, health, agent, running };
}

type Observed = Awaited<ReturnType<typeof observeTarget>>;

/** What becomes of pods: sources, admission, workers, status, and what cleans up after them. */
function composeSync(deps: KubeletDeps, cluster: Cluster, observed: Observed, waker: Waker) {
  const { config, target, client, clock, log } = deps;
  const { events, nodes } = cluster;
  const { pleg, health, agent } = observed;
  const { host, runtime } = target;
  const pods = createPodManager();
  const stop = new AbortController();
  const statuses = createStatusManager({
    api: createPodApi(client),
    pods,
    mayRun: (uid) => mayRun(workers.get(uid)?.phase),
    clock,
    log,
  });
  const onSandboxReady = async ({ metadata: { uid } }: Pod) => {
    const pod = pods.get(uid);
    if (pod) statuses.set(pod, statusOf(pod, await pleg.inspect(uid, stop.signal), false));
  };
  const { volumes, ground, podRuntime } = composeRuntime({
    ...deps,
    ...cluster,
    ...observed,
    pods,
    containerLogsDir,
    onSandboxReady,
  });
  cluster.objects.onChange(volumes.objectChanged);
  const probes = createProbes({
    host,
    runtime,
    clock,
    log,
    events,
    cache: pleg.cache,
    pods,
    status: statuses,
    waker,
    agentStartedAt: clock.now(),
  });
  const statusOf = (pod: Pod, seen: RuntimePod, ending: boolean): PodStatus => {
    const { uid } = pod.metadata;
    const readiness = (name: string, id: string) => probes.readiness(uid, name, id);
    const runtimeName = health.version()?.runtimeName ?? "";
    return generateStatus({
      pod,
      observed: seen,
      ending,
      previous: statuses.get(uid),
      failures: podRuntime.failures(uid),
      readiness,
      hostIPs: agent.hostIPs(),
      runtimeName,
    });
  };
  const passes = createPasses({
    cache: pleg.cache,
    inspector: pleg,
    runtime: podRuntime,
    volumes,
    objects: cluster.objects,
    prober: probes,
    served: createServed(),
    status: statuses,
    events,
    ground,
    statusOf,
    networkError: health.networkError,
    syncMs: config.kubelet.syncFrequency,
    clock,
    log,
  });
  const workers = createPodWorkers({ passes, clock, log, stop: stop.signal });
  const freshNode = (signal: AbortSignal) => client.get<Node>(`/api/v1/nodes/${config.nodeName}`, { signal });
  const admission = createAdmission({ node: nodes, freshNode, allocatable: agent.allocatable, log });
  const syncLoop = createSyncLoop({
    pods,
    workers,
    cache: pleg.cache,
    admission,
    status: statuses,
    events,
    nowText: () => rfc3339(clock.now()),
    log,
  });
  const podConfig = createPodConfig({ expected: ["api"], emit: syncLoop.push, events, clock });
  const source = createApiServerSource({
    client,
    clock,
    log,
    nodeName: config.nodeName,
    set: (all) => podConfig.set("api", all),
    after: nodes.ready,
  });
  const garbage = createGarbage({
    runtime,
    fs: host.fs,
    cache: pleg.cache,
    inspector: pleg,
    podLogsDir: config.kubelet.podLogsDir,
    containerLogsDir,
    clock,
    log,
  });
  const housekeeping = createHousekeeping({
    pods,
    workers,
    cache: pleg.cache,
    sourcesSeen: () => podConfig.allSeen() && syncLoop.caughtUp(),
    directories: volumes.podDirectories,
    forgetExcept: probes.collect,
    clock,
    log,
    async sweep(uid, signal) {
      await garbage.podGone(uid, signal);
      await volumes.removePodDirectory(uid, signal);
      podRuntime.forget(uid);
      statuses.forget(uid);
    },
  });
  const draining: Service = { name: "pod-workers", run: (signal) => drain(signal, stop, workers.idle, clock) };
  const stoppingVolumes: Service = { name: "volumes", run: async (signal) => onAbort(signal).then(volumes.stop) };
  const running: readonly Service[] = [
    statuses,
    stoppingVolumes,
    probes,
    draining,
    syncLoop,
    source,
    housekeeping,
    garbage,
  ];
  return { pods, statuses, workers, running };
}

/** A worker that has not taken its pod down yet may have containers running. */
function mayRun(phase: string | undefined): boolean {
  return phase === "syncing" || phase === "terminating";
}

/** Ends the workers' passes and waits for calls to the runtime that must not be cut off. */
async function drain(
  signal: AbortSignal,
  workers: AbortController,
  idle: () => Promise<void>,
  clock: Clock,
): Promise<void> {
  await onAbort(signal);
  workers.abort();
  const patience = new AbortController();
  await Promise.race([idle(), clock.sleep(drainMs, patience.signal).catch(() => undefined)]);
  patience.abort();
}
