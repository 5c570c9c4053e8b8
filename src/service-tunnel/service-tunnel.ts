import { coalesce } from "../lib/coalesce.ts";
import { CodedError } from "../lib/errors.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { throttle } from "../lib/throttle.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { onAbort, type Runnable, untilAborted } from "../lib/runnables.ts";
import { createFairShares } from "../lib/fair-shares.ts";
import type { EndpointSlice } from "../objects.ts";
import type { WaitForTarget, RuntimePod } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import type { Column } from "../state/records.ts";
import { createConnectionForwarder } from "./connections.ts";
import { createDatagramFlows } from "./datagrams.ts";
import {
  type Destinations,
  type ServiceFilter,
  parseDestination,
  destinationsOf,
  headlessDestinations,
  destinationHosts,
} from "./destinations.ts";
import { listenOnTarget, preflightFailure, noIPv4Services } from "./preflight.ts";
import { probeDestinations } from "./firewall-probe.ts";
import { createFirewallWatch, type FirewallWatch } from "./firewall-watch.ts";
import { createTunnelGate } from "./gate.ts";
import { createTunnelLimitations } from "./tunnel-limitations.ts";
import type { ReportLimitation } from "../api/limitations.ts";
import type { TunnelLimits } from "./tunnel-limits.ts";
import { createPodAddresses } from "./pod-addresses.ts";
import { type Relay, startTunnelRelay } from "./relay.ts";
import { applyRules, type Redirections, rulesCheck, rulesText, tunnelSocket } from "./rules.ts";
import type { PodServiceTunnel } from "../runtime/ports.ts";
import type { ServiceSource } from "../api/listers.ts";

/** Why pods do not reach Services through the tunnel, in a sentence: the target does not meet a requirement, or its firewall blocks
 *  them. */
export interface TunnelObstacle {
  readonly reason: "ServiceTunnelUnavailable" | "FirewallBlocksTunnel";
  readonly message: string;
}

/** Service tunnel: gives pods on an isolated target access to the cluster's Services, over the link. */
export interface ServiceTunnel extends Runnable, PodServiceTunnel {
  /** Undefined if pods reach Services, as far as is known. */
  obstacle(): TunnelObstacle | undefined;
}

export interface ServiceTunnelDeps extends ClockAndLog {
  readonly host: Pick<Host, "run" | "spawn" | "listen" | "fs" | "forPods">;
  readonly rootDir: string;
  readonly podCache: Column<RuntimePod>;
  readonly services: ServiceSource;
  /** Headless Services and their endpoints; absent if graftlet may not read them. */
  readonly headless:
    | {
        readonly services: ServiceSource;
        readonly endpoints: { list(): readonly EndpointSlice[]; onChange(hear: () => void): () => void };
      }
    | undefined;
  /** Returns true for Services that pods may reach. */
  readonly serviceFilter: ServiceFilter;
  readonly nodeName: string;
  /** Limits of the process, for all of its nodes. */
  readonly tunnelLimits: TunnelLimits;
  readonly waitForTarget: WaitForTarget;
  readonly onObstacleChange: () => void;
  /** Reports a limitation of the running tunnel as an event on the node. */
  readonly report: ReportLimitation;
}

/** Minimum interval between reactions to changes of Services, milliseconds. */
const syncIntervalMs = 250;
/** Maximum time that a pod's start waits for the tunnel, milliseconds. */
const openTimeoutMs = 5_000;
/** Restart delay after the tunnel has ended, and after the target turned out not to support it, milliseconds. */
const restartDelayMs = 500;
const unsupportedRetryDelayMs = 30_000;

/** Maximum number of concurrent connections and of UDP flows of a node's pods; a single pod gets at most half of each. */
const maxConnections = 2_304;
const maxFlows = 4_096;

const rulesMissingText = "service tunnel rules are missing from the target's firewall; restoring them";

interface ActiveTunnel {
  /** Reconciles the target with Services and pods. */
  readonly sync: () => Promise<void>;
}

/** Runs the service tunnel: firewall rules on the target redirect its pods' traffic for Services to a relay there, the link forwards it
 *  to graftlet, and graftlet connects to the Service from its own network. The rules remain when graftlet stops; connections are then
 *  refused until it is back. */
export function createServiceTunnel(deps: ServiceTunnelDeps): ServiceTunnel {
  const { services, podCache, clock, log } = deps;
  const addresses = createPodAddresses(podCache);
  let unavailable: string | undefined;
  let blocked: string | undefined;
  let active: ActiveTunnel | undefined;
  let stateChanged = Promise.withResolvers<void>();
  const setState = (now: ActiveTunnel | undefined, why?: string) => {
    active = now;
    const changed = unavailable !== why;
    unavailable = why;
    stateChanged.resolve();
    stateChanged = Promise.withResolvers();
    if (changed) deps.onObstacleChange();
  };
  const onFirewall = (message: string | undefined) => {
    if (message === blocked) return;
    blocked = message;
    if (message !== undefined)
      log.warn({ message }, "the target's firewall blocks pods' traffic to the service tunnel");
    deps.onObstacleChange();
  };
  const waitForSync = async (signal: AbortSignal) => {
    const soon = clock.within(openTimeoutMs, signal);
    try {
      if (!active && !unavailable) await untilAborted(stateChanged.promise, soon);
      await untilAborted(active?.sync() ?? Promise.resolve(), soon);
    } catch (err) {
      if (!signal.aborted) log.warn({ err }, "service tunnel is not ready; starting the pod without waiting");
    }
  };
  const runOnce = async (signal: AbortSignal) => {
    try {
      await runTunnel({ ...deps, addresses, ready: (now) => setState(now), onFirewall }, signal);
      setState(undefined);
    } catch (error) {
      const why = signal.aborted ? undefined : preflightFailure(error);
      setState(undefined, why);
      if (why) log.warn({ err: error }, "service tunnel is not available");
      else throw error;
    }
  };
  const { waitForTarget } = deps;
  const intervalMs = () => (unavailable ? unsupportedRetryDelayMs : restartDelayMs);
  return {
    ...runPeriodically({ name: "service tunnel", intervalMs, waitForTarget, clock, log }, async (signal) => {
      while (services.list() === undefined) await clock.sleep(syncIntervalMs, signal);
      await runOnce(signal);
    }),
    obstacle() {
      if (unavailable !== undefined) return { reason: "ServiceTunnelUnavailable", message: unavailable };
      return blocked === undefined ? undefined : { reason: "FirewallBlocksTunnel", message: blocked };
    },
    async openFor(uid, given, signal) {
      addresses.add(uid, given);
      await waitForSync(signal);
    },
    async closeFor(uid, signal) {
      addresses.remove(uid);
      if (active) await waitForSync(signal);
    },
  };
}

interface RunTunnelDeps extends ServiceTunnelDeps {
  readonly addresses: ReturnType<typeof createPodAddresses>;
  readonly ready: (standing: ActiveTunnel) => void;
  /** Receives what blocks pods on their way to the relay; undefined if nothing does. */
  readonly onFirewall: (obstacle: string | undefined) => void;
}

/** Sets up the tunnel and runs it until the relay ends or the signal aborts. @throws the target's error if it cannot be set up. */
async function runTunnel(deps: RunTunnelDeps, signal: AbortSignal): Promise<void> {
  const { host, rootDir, services, addresses, clock, log } = deps;
  await using stack = new AsyncDisposableStack();
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  stack.defer(() => over.abort());
  let failure: { readonly error: unknown } | undefined;
  const fail = (error: unknown) => {
    failure ??= { error };
    over.abort();
  };
  const gate = createTunnelGate();
  const limitations = createTunnelLimitations(deps);
  const onRefused = createRateLimitedWarning({ log, clock }, "refused a pod's connection to a Service");
  const rulesLost = createRateLimitedWarning({ log, clock }, rulesMissingText);
  const link = tunnelSocket(rootDir);
  const connections = createFairShares(maxConnections, () => deps.tunnelLimits.connections.acquire(deps.nodeName));
  const join = createConnectionForwarder({
    gate,
    shares: connections,
    onRefused,
    onLimitReached: limitations.connections,
    clock,
  });
  stack.use(await listenOnTarget(host, link, (connection) => void join(connection), until));
  const shares = createFairShares(maxFlows, () => deps.tunnelLimits.flows.acquire(deps.nodeName));
  const flows = createDatagramFlows({ gate, shares, clock, reply: (datagram) => relay.reply(datagram) });
  stack.defer(() => flows.close());
  let applied: Redirections | undefined;
  const relay = await startTunnelRelay(
    deps,
    { link, check: rulesCheck(rootDir) },
    {
      onDatagram: (datagram) => flows.send(datagram),
      onFull: (pod) => (gate.isPod(pod) ? limitations.connections(pod) : undefined),
      onRulesLost() {
        rulesLost({});
        applied = undefined;
        follow();
      },
    },
    until,
  );
  const portsFor = datagramPorts(relay, limitations);
  const firewall = watchFirewall(deps, () => applied);
  const sync = coalesce(async () => {
    const pods = addresses.list();
    const { tcp, udp, addresses: cluster, addressesIPv6 } = currentDestinations(deps, pods);
    gate.allow({ pods, tcp, udp });
    flows.recheck();
    relay.allow(pods);
    const ports = await portsFor(udp, until);
    limitations.addresses(pods, [...new Set([...cluster, ...destinationHosts(tcp)])], until);
    const ipv6 = { pods: addresses.listIPv6(), addresses: addressesIPv6 };
    const now: Redirections = { port: relay.port, pods, tcp, udp: ports, addresses: cluster, ipv6 };
    const text = rulesText(rootDir, now, applied);
    if (text === "") return;
    const isNew = !applied;
    applied = undefined;
    await applyRules(host, text, until);
    applied = now;
    if (isNew) firewall.rulesChanged();
    else firewall.podsChanged();
  });
  const follow = throttle(() => void sync().catch(fail), syncIntervalMs, clock);
  await sync();
  stack.defer(services.onChange(follow));
  for (const watched of Object.values(deps.headless ?? {})) stack.defer(watched.onChange(follow));
  // Most changes of observed pods do not affect addresses, so compare them.
  const followPods = () => (addresses.list().join() === applied?.pods.join() ? undefined : follow());
  stack.defer(addresses.onChange(followPods));
  stack.defer(addresses.onChange(firewall.podsChanged));
  deps.ready({ sync });
  void firewall.run(until);
  void relay.ended.then(
    (output) => fail(new CodedError("unavailable", `the relay on the target exited: ${output || "no output"}`)),
    fail,
  );
  await onAbort(until);
  if (failure && !signal.aborted) throw failure.error;
}

/** Watches for a firewall between pods and the relay. @param applied returns the rules on the target. */
function watchFirewall(
  { host, rootDir, services, addresses, onFirewall, clock, log }: RunTunnelDeps,
  applied: () => Redirections | undefined,
): FirewallWatch {
  return createFirewallWatch({
    host,
    rootDir,
    pod: () => addresses.inNamespaces().find((pod) => applied()?.pods.includes(pod)),
    destinations: () => probeDestinations(applied() ?? { tcp: [], udp: [] }, services.list()),
    onResult: onFirewall,
    clock,
    log,
  });
}

/** Requests UDP ports from the relay when the destinations have changed. */
function datagramPorts(relay: Relay, limitations: ReturnType<typeof createTunnelLimitations>) {
  let ports: Redirections["udp"] = [];
  let requested = "";
  return async (wanted: readonly string[], signal: AbortSignal): Promise<Redirections["udp"]> => {
    if (requested === wanted.join()) return ports;
    ports = await untilAborted(relay.listen(wanted), signal);
    requested = wanted.join();
    limitations.datagrams(wanted, ports);
    return ports;
  };
}

/** Returns the current destinations in the cluster. Headless endpoints that are this node's own pods are omitted. */
function currentDestinations(
  { services, headless, serviceFilter, nodeName }: ServiceTunnelDeps,
  pods: readonly string[],
): Destinations {
  const known = services.list() ?? [];
  const { tcp, ...rest } = destinationsOf(known, serviceFilter);
  if (known.length > 0 && rest.addresses.length === 0) throw new CodedError("failed_precondition", noIPv4Services);
  const single = headlessDestinations(
    headless?.endpoints.list() ?? [],
    headless?.services.list() ?? [],
    nodeName,
    serviceFilter,
  );
  const elsewhere = single.filter((to) => !pods.includes(parseDestination(to)?.host ?? ""));
  return { ...rest, tcp: [...new Set([...tcp, ...elsewhere])].sort() };
}
