import { createAccessReview, readClusterClientCA } from "./api/access.ts";
import { createAdmission } from "./admission/chain.ts";
import { createServed } from "./admission/served.ts";
import type { ApiClient } from "./api/client.ts";
import { createEventRecorder } from "./api/events.ts";
import { createNodeWatch, createServiceLister } from "./api/listers.ts";
import { createObjectCaches } from "./api/objects.ts";
import { createTokenSource } from "./api/tokens.ts";
import { clientCAFromCluster, clientCAFromFile } from "./certificates/client-ca.ts";
import { createServingCertificate } from "./certificates/serving.ts";
import { configurationDocument } from "./config/kubelet-configuration.ts";
import type { NodeConfig } from "./config/node-config.ts";
import { createGarbage } from "./gc/garbage.ts";
import { ContainerState } from "./gen/cri.ts";
import type { Clock } from "./lib/clock.ts";
import type { Logger } from "./lib/log.ts";
import { rfc3339 } from "./lib/rfc3339.ts";
import { type Service, runGroup } from "./lib/service-group.ts";
import { createNodeAgent } from "./node/node-agent.ts";
import { createRuntimeHealth } from "./node/runtime-health.ts";
import { nodeSettings, podSettings, serverConfig } from "./node-setup.ts";
import type { Node, Pod, PodStatus } from "./objects.ts";
import type { RuntimePod, Waker } from "./pipeline.ts";
import { createPleg } from "./pleg/pleg.ts";
import { nodeLabel } from "./pod/labels.ts";
import { generateStatus } from "./pod/status.ts";
import { createProbes } from "./probes/probes.ts";
import { createPodGround } from "./resources/pod-ground.ts";
import { createCrashLoop } from "./runtime/crash-loop.ts";
import { createImagePuller } from "./runtime/images/puller.ts";
import { createLogReader } from "./runtime/logs/reader.ts";
import { createPodRuntime } from "./runtime/pod-runtime.ts";
import { createPreparer } from "./runtime/prepare.ts";
import { createTargetFacts } from "./runtime/target-facts.ts";
import { readTerminationMessage } from "./runtime/termination-message.ts";
import type { Target } from "./seams/provider.ts";
import { createHealthzServer } from "./server/healthz.ts";
import { alwaysAllow } from "./server/ports.ts";
import { cachedAuthenticator, cachedAuthorizer } from "./server/review-cache.ts";
import { createKubeletServer } from "./server/server.ts";
import { createApiServerSource } from "./sources/apiserver.ts";
import { createPodConfig } from "./sources/pod-config.ts";
import { createStatusManager } from "./status/manager.ts";
import { createPodApi } from "./status/pod-api.ts";
import { createHousekeeping } from "./sync/housekeeping.ts";
import { createPasses } from "./sync/passes.ts";
import { createPodManager } from "./sync/pod-manager.ts";
import { createPodWorkers } from "./sync/pod-workers.ts";
import { createSyncLoop } from "./sync/sync-loop.ts";
import { createCgroupLayout } from "./resources/cgroup-layout.ts";
import { createVolumes } from "./volumes/volumes.ts";

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
  const { config, target, client, clock, log } = deps;
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const ownerLabels: Record<string, string> = target.sharing === "shared" ? { [nodeLabel]: nodeName } : {};
  const uninterrupted = new AbortController().signal;
  const common = { client, clock, log };

  // What the cluster says.
  const events = createEventRecorder({ ...common, component: "kubelet", host: nodeName, qps: kubelet.eventRecordQPS, burst: kubelet.eventBurst });
  const nodes = createNodeWatch({ ...common, nodeName });
  const services = createServiceLister(common);
  const objects = createObjectCaches(common);
  const tokens = createTokenSource(common);

  // What the target shows.
  const waker: Waker = { wake: (uid, cause) => workers.wake(uid, cause) };
  const isRunning = async (id: string, stop: AbortSignal) => (await runtime.containerStatus(id, stop)).status?.state === ContainerState.CONTAINER_RUNNING;
  const logs = createLogReader({ host, clock, log, roots: [kubelet.podLogsDir], isRunning });
  const pleg = createPleg({ runtime, clock, log, ownerLabels, waker, terminationMessage: (status, stop) => readTerminationMessage({ fs: host.fs, logs }, status, stop) });
  const health = createRuntimeHealth({ runtime, clock, log, onChange: () => agent.hurry() });
  const plegProblems = () => [pleg.unhealthy()].filter((problem) => problem !== undefined);
  const agent = await createNodeAgent({ ...common, settings: nodeSettings(config), nodes, host, images: runtime, runtime: health, problems: plegProblems, events }, signal);

  // What pods get.
  const pods = createPodManager();
  const volumes = createVolumes({ host, objects, tokens, events, clock, log, nodeName, rootDir, allocatable: agent.allocatable });
  objects.onChange(volumes.objectChanged);
  const layout = createCgroupLayout({ runtime, kubelet, log });
  const settings = podSettings(config, ownerLabels, containerLogsDir);
  const ground = createPodGround({ host, rootDir, layout, settings, podPidsLimit: kubelet.podPidsLimit, pods });
  const preparer = createPreparer({
    settings, fs: host.fs, images: runtime, objects, services, addresses: agent, volumes,
    facts: createTargetFacts(host.fs), cgroups: layout, allocatable: agent.allocatable, events, clock, log,
  });
  const puller = createImagePuller({
    images: runtime, objects, events, clock, log, serialize: kubelet.serializeImagePulls, maxParallel: kubelet.maxParallelImagePulls,
    qps: kubelet.registryPullQPS, burst: kubelet.registryBurst,
  });
  const podRuntime = createPodRuntime({
    ...preparer, runtime, fs: host.fs, events, log, uninterrupted,
    crashLoop: createCrashLoop({ clock, events, maxMs: kubelet.crashLoopBackOff.maxContainerRestartPeriod }),
    ensureImage: async ({ pod, container, sandbox }, stop) => (await puller.ensure(pod, container, sandbox.config, stop)).imageRef,
    onSandboxReady: async (pod) => statuses.set(pod, statusOf(pod, await pleg.inspect(pod.metadata.uid, uninterrupted), false)),
  });

  // What becomes of pods.
  const statuses = createStatusManager({ api: createPodApi(client), pods, mayRun: (uid) => isActive(workers.get(uid)?.phase), clock, log });
  const probes = createProbes({ host, runtime, clock, log, events, cache: pleg.cache, pods, status: statuses, waker, agentStartedAt: clock.now() });
  const statusOf = (pod: Pod, observed: RuntimePod, ending: boolean): PodStatus =>
    generateStatus({
      pod, observed, ending,
      previous: statuses.get(pod.metadata.uid),
      failures: podRuntime.failures(pod.metadata.uid),
      readiness: (name, id) => probes.readiness(pod.metadata.uid, name, id),
      hostIPs: agent.hostIPs(),
      runtimeName: health.version()?.runtimeName ?? "",
    });
  const passes = createPasses({
    cache: pleg.cache, inspector: pleg, runtime: podRuntime, volumes, objects, prober: probes, served: createServed(), status: statuses, events, ground, statusOf,
    networkError: health.networkError, clock, log,
  });
  const stopWorkers = new AbortController();
  const workers = createPodWorkers({ passes, clock, log, stop: stopWorkers.signal });
  const freshNode = (stop: AbortSignal) => client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal: stop });
  const admission = createAdmission({ node: nodes, freshNode, allocatable: agent.allocatable, log });
  const syncLoop = createSyncLoop({ pods, workers, admission, status: statuses, events, nowText: () => rfc3339(clock.now()), log });
  const podConfig = createPodConfig({ expected: ["api"], emit: syncLoop.push, events, clock });
  const source = createApiServerSource({ ...common, nodeName, set: (all) => podConfig.set("api", all), after: nodes.ready });
  const garbage = createGarbage({ runtime, fs: host.fs, cache: pleg.cache, inspector: pleg, podLogsDir: kubelet.podLogsDir, containerLogsDir, clock, log });
  const housekeeping = createHousekeeping({
    pods, workers, cache: pleg.cache, clock, log,
    sourcesSeen: podConfig.allSeen,
    directories: volumes.podDirectories,
    forgetExcept: probes.collect,
    async sweep(uid, stop) {
      await garbage.podGone(uid, stop);
      await volumes.removePodDirectory(uid, stop);
      podRuntime.forget(uid);
      statuses.forget(uid);
    },
  });

  // Who may look in.
  const certificate = await createServingCertificate({
    certDir: config.certDir, nodeName, addresses: [nodeName, ...agent.hostIPs()], clock, log,
    ...(kubelet.tlsCertFile && { certFile: kubelet.tlsCertFile }), ...(kubelet.tlsPrivateKeyFile && { keyFile: kubelet.tlsPrivateKeyFile }),
  });
  const { x509, webhook } = kubelet.authentication;
  const clientCA = x509.clientCAFile ? await clientCAFromFile(x509.clientCAFile, { clock, log }) : clientCAFromCluster((stop) => readClusterClientCA(client, stop), { clock, log });
  const reviews = createAccessReview({ client, clock, nodeName });
  const { mode, webhook: ttl } = kubelet.authorization;
  const authorizer = mode === "AlwaysAllow" ? alwaysAllow : cachedAuthorizer(reviews, clock, { allowedMs: ttl.cacheAuthorizedTTL, deniedMs: ttl.cacheUnauthorizedTTL });
  const server = createKubeletServer({
    config: serverConfig(config), certificate, clientCA, authorizer, pods, statuses, runtimePods: pleg.cache, runtime, logs, clock, log,
    ...(webhook.enabled && { authenticator: cachedAuthenticator(reviews, clock, webhook.cacheTTL) }),
    syncLoop: pleg.unhealthy,
    configz: () => configurationDocument(kubelet),
  });
  const healthz = kubelet.healthzPort > 0 ? [createHealthzServer({ address: kubelet.healthzBindAddress, port: kubelet.healthzPort, clock, log })] : [];

  const runtimeUp: Service = { ...pleg, ready: async (stop) => void (await Promise.all([pleg.ready(stop), health.answered(stop)])) };
  const draining: Service = { name: "pod-workers", run: (stop) => drain(stop, stopWorkers, workers.idle, clock) };
  const stopVolumes: Service = { name: "volumes", run: (stop) => new Promise((resolve) => stop.addEventListener("abort", () => resolve(volumes.stop()), { once: true })) };
  await runGroup(
    [
      events, ...healthz, ...(kubelet.enableServer ? [certificate, clientCA, server] : []), nodes, services, objects, tokens, health, ...agent.services,
      runtimeUp, statuses, stopVolumes, probes, draining, syncLoop, source, housekeeping, garbage,
    ],
    signal,
  );
}

function isActive(phase: string | undefined): boolean {
  return phase === "syncing" || phase === "terminating";
}

/** Ends the workers' passes and waits for calls to the runtime that must not be cut off. */
async function drain(signal: AbortSignal, workers: AbortController, idle: () => Promise<void>, clock: Clock): Promise<void> {
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  workers.abort();
  const patience = new AbortController();
  await Promise.race([idle(), clock.sleep(drainMs, patience.signal).catch(() => undefined)]);
  patience.abort();
}
