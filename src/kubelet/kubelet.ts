import type { ApiClient } from "../api/client.ts";
import { createEventRecorder } from "../api/events.ts";
import { createNodeWatch, createServiceLister } from "../api/listers.ts";
import { createObjectCaches } from "../api/objects.ts";
import { createRuntimeClasses } from "../api/runtime-classes.ts";
import { createTokenSigners } from "../api/token-signers.ts";
import { createTokenSource } from "../api/tokens.ts";
import type { Approve } from "../certificates/approver.ts";
import type { PairStore } from "../certificates/pair-store.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { createDevices } from "../devices/devices.ts";
import { ContainerState } from "../gen/cri.ts";
import { changedFacts, type HostFacts, readFacts } from "../host/facts.ts";
import { createTargetClock } from "../host/target-clock.ts";
import { composeServer } from "./server.ts";
import { composeSync } from "./sync.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { paced } from "../lib/paced.ts";
import { type Service, onAbort, runGroup, untilAborted } from "../lib/service-group.ts";
import type { NodeMetrics } from "../metrics/node-metrics.ts";
import { measuredRuntime } from "../metrics/runtime-calls.ts";
import { createNodeAgent } from "../node/node-agent.ts";
import { ownAddresses } from "../node/own-addresses.ts";
import { nameResolves } from "../node/own-name.ts";
import { createPodCidr } from "../node/pod-cidr.ts";
import { type Reachability, type ReachabilityDeps, createReachability } from "../node/reachability.ts";
import type { Readiness } from "../node/readiness.ts";
import { createRebootWatch } from "../node/reboot-watch.ts";
import { createRuntimeHealth } from "../node/runtime-health.ts";
import { createTargetRights } from "../node/target-rights.ts";
import { deviceSettings, nodeSettings, staticSources } from "./settings.ts";
import type { Retrier, Waker } from "../pipeline.ts";
import { createPleg } from "../pleg/pleg.ts";
import { nodeLabel } from "../pod/labels.ts";
import { createLogReader } from "../logs/reader.ts";
import type { Strangers } from "../server/strangers.ts";
import { loggedEvents, noNode } from "./standalone.ts";
import { readTerminationMessage, readWrittenMessage } from "../runtime/termination-message.ts";
import type { Host } from "../seams/host.ts";
import { type Target, TargetError, type TargetLink } from "../seams/provider.ts";

/** The lock that makes the target this node's. */
export interface TargetClaim {
  /** Takes the lock again after the target was lost. @throws TargetError RuntimeInUse when somebody else has it. */
  renew(signal: AbortSignal): Promise<void>;
}

export interface KubeletDeps {
  readonly config: NodeConfig;
  readonly target: Target;
  /** That the target is this node's. */
  readonly claim: TargetClaim;
  readonly client: ApiClient;
  /** There is no API server: pods come from files and URLs, and what becomes of them is told by the log and the kubelet API. */
  readonly alone: boolean;
  /** The Pod's service account, where graftlet runs as one. */
  readonly account?: { readonly client: ApiClient };
  /** Where a certificate of that name is kept. */
  readonly store: (name: string) => PairStore;
  /** Approves the request for the kubelet API's certificate; absent where others do. */
  readonly approve?: Approve;
  /** Of this process: tells its health endpoints from others'. */
  readonly instance: string;
  readonly readiness: Readiness;
  /** Of this process: the connections of peers that are not known. */
  readonly strangers: Strangers;
  readonly metrics: NodeMetrics;
  /** The certificate in PEM by which the API server knows the node. */
  readonly clientCertificate: () => string | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Runs one node until the signal aborts, or until a remote target has booted, has changed while it was out of reach, or was
 *  somebody else's then: builds every stage in the order of the pipeline,
 *  hands each what it asks of the others, and starts them. Pods stay as they are when it ends.
 *  @returns `again` when the node should be run anew.
 *  @throws the first failure of a service, such as a port that is taken, in one sentence. */
export async function runKubelet(all: KubeletDeps, given: AbortSignal): Promise<"stopped" | "again"> {
  const runtime = measuredRuntime(all.target.runtime, all.metrics.measures.runtime, all.clock);
  const deps: KubeletDeps = { ...all, target: { ...all.target, runtime } };
  const anew = new AbortController();
  const signal = AbortSignal.any([given, anew.signal]);
  const cluster = deps.alone ? observeNothing(deps) : observeCluster(deps);
  const waker: Waker & Retrier = {
    wake: (uid, cause) => sync.workers.wake(uid, cause),
    retryFailed: () => sync.workers.retryFailed(),
  };
  const reachability = createSelfTest(deps, {
    waiting: () => server.waiting(),
    onChange: () => target.agent.hurry(),
  });
  const target = await observeTarget(deps, cluster, waker, {
    signal,
    onReboot: () => anew.abort(),
    reachable: reachability?.verdict,
  });
  const sync = composeSync(deps, cluster, target, waker);
  const { pods, podsKnown, statuses, stats } = sync;
  const { signers } = cluster;
  const serving = { addresses: target.agent, pods, podsKnown, statuses, stats, signers };
  const server = await composeServer({ ...target, ...deps, ...serving }, signal);
  const { clientCertificate, metrics } = deps;
  const { certificate: servingCertificate } = server;
  metrics.show({
    ...sync.view,
    cgroupVersion: target.agent.facts.cgroupVersion,
    servingCertificate,
    clientCertificate,
  });
  const tested = reachability ? [reachability] : [];
  const served = tellOfService([podsKnown, server.certified], () => deps.readiness.settled(deps.config.nodeName));
  const stages = [...cluster.running, ...target.running, ...sync.running];
  await runGroup([...server.running, ...stages, served, ...tested], signal);
  return anew.signal.aborted && !given.aborted ? "again" : "stopped";
}

/** Tells once that all is there which the kubelet API needs to answer of pods. */
function tellOfService(needed: readonly Promise<void>[], tell: () => void): Service {
  return {
    name: "readiness",
    async run(signal) {
      const all = Promise.all(needed);
      await untilAborted(all, signal).then(tell, () => undefined);
      await onAbort(signal);
    },
  };
}

/** Tries the way from the API server to the kubelet API, in a Pod, whose account may. */
function createSelfTest(
  { account, config, clock, log }: KubeletDeps,
  of: Pick<ReachabilityDeps, "waiting" | "onChange">,
): Reachability | undefined {
  if (!account || !config.kubelet.enableServer) return undefined;
  return createReachability({ ...of, client: account.client, nodeName: config.nodeName, clock, log });
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
  const runtimeClasses = createRuntimeClasses(common);
  const objects = createObjectCaches(common);
  const signers = createTokenSigners(clock);
  const tokens = createTokenSource({ ...common, signers });
  // Static pods may be what the API server itself is run by: with them a node does not wait for it.
  const patient = { ...nodes, ready: (signal: AbortSignal) => atMost(firstAnswerMs, nodes.ready, clock, signal) };
  const first = staticSources(config).length > 0 ? patient : nodes;
  const running: readonly Service[] = [events, first, services, runtimeClasses, objects, tokens];
  return { events, nodes, services, runtimeClasses, objects, tokens, signers, running };
}

const firstAnswerMs = 2_000;

async function atMost(
  ms: number,
  ready: (signal: AbortSignal) => Promise<void>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const patience = clock.within(ms, signal);
  await untilAborted(ready(patience), patience).catch(() => undefined);
}

/** Without a cluster: no Node, no services, nothing that pods could refer to. */
function observeNothing({ client, clock, log }: KubeletDeps): Cluster {
  const common = { client, clock, log };
  const events = loggedEvents(log);
  const services: Cluster["services"] = { name: "no services", run: onAbort, list: () => [] };
  const runtimeClasses = createRuntimeClasses(common);
  const objects = createObjectCaches(common);
  const signers = createTokenSigners(clock);
  const tokens = createTokenSource({ ...common, signers });
  const running = [events, objects, tokens];
  return { events, nodes: noNode, services, runtimeClasses, objects, tokens, signers, running };
}

export type Cluster = ReturnType<typeof observeCluster>;

interface Surroundings {
  readonly signal: AbortSignal;
  readonly onReboot: () => void;
  readonly reachable: Reachability["verdict"] | undefined;
}

/** What the target's runtime shows of pods, and what they log. */
function observePods(
  { config, target, metrics, clock, log }: Pick<KubeletDeps, "config" | "target" | "metrics" | "clock" | "log">,
  waker: Waker & Retrier,
) {
  const { host, runtime, sharing } = target;
  const ownerLabels: Record<string, string> = sharing === "shared" ? { [nodeLabel]: config.nodeName } : {};
  const isRunning = async (id: string, stop: AbortSignal) =>
    (await runtime.containerStatus(id, stop)).status?.state === ContainerState.CONTAINER_RUNNING;
  const logs = createLogReader({ host, clock, log, roots: [config.kubelet.podLogsDir], runtime, isRunning });
  const ends = { fs: host.fs, logs };
  const pleg = createPleg({
    runtime,
    clock,
    log,
    ownerLabels,
    waker,
    onReturn: waker.retryFailed,
    measures: metrics.measures.pleg,
    terminationMessage: (...of) => readTerminationMessage(ends, ...of),
    writtenMessage: (...of) => readWrittenMessage(ends, ...of),
  });
  return { ownerLabels, logs, pleg };
}

/** What the target shows: its pods, its logs, its health; and the Node that tells the cluster of it. */
async function observeTarget(
  { config, target, claim, client, alone, metrics, clock, log }: KubeletDeps,
  { events, nodes }: Cluster,
  waker: Waker & Retrier,
  { signal, onReboot, reachable }: Surroundings,
) {
  const { host, runtime } = target;
  const { ownerLabels, logs, pleg } = observePods({ config, target, metrics, clock, log }, waker);
  const rights = createTargetRights(target, { log });
  await rights.read(signal);
  // A plugin that changes its mind all the time must not make the node talk as often.
  const devicesChanged = paced(() => agent.hurry(), 1_000, clock);
  const devices = createDevices({ ...deviceSettings(config), host, onChange: devicesChanged, waker, clock, log });
  const health = createRuntimeHealth({ runtime, clock, log, onChange: () => agent.hurry() });
  const agent = await createNodeAgent(
    {
      settings: nodeSettings(config),
      client,
      ownAddresses: target.link || config.kubeletAddress.of !== "host" ? ownAddresses() : undefined,
      nodes,
      resolves: nameResolves,
      host,
      images: runtime,
      runtime: health,
      problems: () => [pleg.unhealthy()].filter((problem) => problem !== undefined),
      ...(target.link && { link: target.link }),
      ...(target.network && { network: target.network }),
      ...(reachable && { reachable }),
      rights,
      devices,
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
  const { link } = target;
  const { facts } = agent;
  const unfit = (stop: AbortSignal) => unfitness(claim, facts, host, stop);
  const reboot = link && createRebootWatch({ host, link, bootID: facts.bootID, unfit, onReboot, clock, log });
  const way = link && reboot ? [reboot, tellOfLink(link, agent.hurry)] : [];
  const targetClock = createTargetClock({ ...target, clock, log });
  const podCidr = createPodCidr({ nodes, runtime, clock, log });
  const own = [...way, targetClock, health, podCidr, devices.service];
  const running: readonly Service[] = [...own, ...(alone ? [] : agent.services), shown];
  return {
    ...(reboot && { presence: reboot.present }),
    ownerLabels,
    targetClock,
    rights,
    logs,
    pleg,
    health,
    devices,
    agent,
    running,
  };
}

/** Why a node cannot go on after its target was out of reach. */
async function unfitness(
  claim: TargetClaim,
  facts: HostFacts,
  host: Host,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await claim.renew(signal);
  } catch (error) {
    if (error instanceof TargetError) return error.message;
    throw error;
  }
  const changed = changedFacts(facts, await readFacts(host, signal));
  return changed.length > 0 ? `other than before: ${changed.join(", ")}` : undefined;
}

/** The node's status says at once when its target is lost, and when it is back. */
function tellOfLink(link: TargetLink, hurry: () => void): Service {
  return { name: "link", run: (signal) => onAbort(signal).finally(link.onChange(hurry)) };
}

export type Observed = Awaited<ReturnType<typeof observeTarget>>;
