import { coalesce } from "../lib/coalesce.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import { throttle } from "../lib/throttle.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { onAbort, type Service, untilAborted } from "../lib/service-group.ts";
import { createFairShares } from "../lib/fair-shares.ts";
import type { EndpointSlice } from "../objects.ts";
import type { PodServiceTunnel, WaitForTarget, RuntimePod } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import type { Column } from "../state/records.ts";
import { createJoiner } from "./connections.ts";
import { createFlows } from "./datagrams.ts";
import {
  type Destinations,
  type Reach,
  destinationOf,
  destinationsOf,
  headlessDestinations,
  hostsOf,
} from "./destinations.ts";
import { listenAt, unfitness, withoutIPv4 } from "./fitness.ts";
import { createGate } from "./gate.ts";
import { createLacks } from "./lacks.ts";
import type { TellLack } from "./limitations.ts";
import type { TunnelPlaces } from "./places.ts";
import { createPodAddresses } from "./pod-addresses.ts";
import { type Relay, startRelay } from "./relay.ts";
import { applyRules, type Redirections, rulesCheck, rulesText, wayLink } from "./rules.ts";
import type { ServiceSource } from "./service-source.ts";

/** Service tunnel: gives pods on an isolated target access to the cluster's Services, over the link. */
export interface ClusterWay extends Service, PodServiceTunnel {
  /** Why the target cannot have a tunnel; undefined otherwise. */
  trouble(): string | undefined;
}

export interface WayDeps {
  readonly host: Pick<Host, "run" | "spawn" | "listen" | "fs" | "forPods">;
  readonly rootDir: string;
  readonly seen: Column<RuntimePod>;
  readonly services: ServiceSource;
  /** Headless Services and their endpoints; absent if graftlet may not read them. */
  readonly headless?: {
    readonly services: ServiceSource;
    readonly endpoints: { list(): readonly EndpointSlice[]; onChange(hear: () => void): () => void };
  };
  /** Returns true for Services that pods may reach. */
  readonly reaches: Reach;
  readonly nodeName: string;
  /** Limits of the process, for all of its nodes. */
  readonly places: TunnelPlaces;
  readonly waitForTarget: WaitForTarget;
  readonly onTrouble: () => void;
  /** Reports a limitation of the running tunnel as an event on the node. */
  readonly tell: TellLack;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Minimum interval between reactions to changes of Services, milliseconds. */
const followMs = 250;
/** Maximum time that a pod's start waits for the tunnel, milliseconds. */
const patienceMs = 5_000;
/** Restart delay after the tunnel has ended, and after the target turned out not to support it, milliseconds. */
const againMs = 500;
const unfitMs = 30_000;

/** Maximum number of concurrent connections and of UDP flows of a node's pods; a single pod gets half of either. */
const mostConnections = 2_304;
const mostFlows = 4_096;

const rulesGone = "service tunnel rules are missing from the target's firewall; restoring them";

/** A running tunnel. */
interface Standing {
  /** Reconciles the target with Services and pods. */
  readonly sync: () => Promise<void>;
}

/** Runs the service tunnel: firewall rules on the target redirect its pods' traffic for Services to a relay there, the link forwards it
 *  to graftlet, and graftlet connects to the Service from its own network. The rules remain when graftlet stops; connections are then
 *  refused until it is back. */
export function createClusterWay(deps: WayDeps): ClusterWay {
  const { services, seen, clock, log } = deps;
  const addresses = createPodAddresses(seen);
  let trouble: string | undefined;
  let standing: Standing | undefined;
  let news = Promise.withResolvers<void>();
  const become = (now: Standing | undefined, why?: string) => {
    standing = now;
    const changed = trouble !== why;
    trouble = why;
    news.resolve();
    news = Promise.withResolvers();
    if (changed) deps.onTrouble();
  };
  const synced = async (signal: AbortSignal) => {
    const soon = clock.within(patienceMs, signal);
    try {
      if (!standing && !trouble) await untilAborted(news.promise, soon);
      await untilAborted(standing?.sync() ?? Promise.resolve(), soon);
    } catch (err) {
      if (!signal.aborted) log.warn({ err }, "service tunnel is not ready; starting the pod without waiting");
    }
  };
  const round = async (signal: AbortSignal) => {
    try {
      await stand({ ...deps, addresses, ready: (now) => become(now) }, signal);
      become(undefined);
    } catch (error) {
      const why = signal.aborted ? undefined : unfitness(error);
      become(undefined, why);
      if (why) log.warn({ err: error }, "service tunnel is not available");
      else throw error;
    }
  };
  const { waitForTarget } = deps;
  const intervalMs = () => (trouble ? unfitMs : againMs);
  return {
    ...runPeriodically({ name: "service tunnel", intervalMs, waitForTarget, clock, log }, async (signal) => {
      while (services.list() === undefined) await clock.sleep(followMs, signal);
      await round(signal);
    }),
    trouble: () => trouble,
    async openFor(uid, given, signal) {
      addresses.joined(uid, given);
      await synced(signal);
    },
    async closeFor(uid, signal) {
      addresses.left(uid);
      if (standing) await synced(signal);
    },
  };
}

interface StandDeps extends WayDeps {
  readonly addresses: ReturnType<typeof createPodAddresses>;
  readonly ready: (standing: Standing) => void;
}

/** Sets up the tunnel and runs it until the relay ends or the signal aborts. @throws the target's error if it cannot be set up. */
async function stand(deps: StandDeps, signal: AbortSignal): Promise<void> {
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
  const gate = createGate();
  const lacks = createLacks(deps);
  const refused = createRateLimitedWarning({ log, clock }, "refused a pod's connection to a Service");
  const rulesLost = createRateLimitedWarning({ log, clock }, rulesGone);
  const link = wayLink(rootDir);
  const connections = createFairShares(mostConnections, () => deps.places.connections.acquire(deps.nodeName));
  const join = createJoiner({ gate, shares: connections, refused, full: lacks.connections, clock });
  stack.use(await listenAt(host, link, (connection) => void join(connection), until));
  const shares = createFairShares(mostFlows, () => deps.places.flows.acquire(deps.nodeName));
  const flows = createFlows({ gate, shares, clock, answer: (datagram) => relay.answer(datagram) });
  stack.defer(() => flows.close());
  let applied: Redirections | undefined;
  const relay = await startRelay(
    deps,
    { link, check: rulesCheck(rootDir) },
    {
      datagram: (datagram) => flows.send(datagram),
      full: (pod) => (gate.isPod(pod) ? lacks.connections(pod) : undefined),
      lost() {
        rulesLost({});
        applied = undefined;
        follow();
      },
    },
    until,
  );
  const portsFor = datagramPorts(relay, lacks);
  const sync = coalesce(async () => {
    const pods = addresses.list();
    const { tcp, udp, addresses: cluster, addressesIPv6 } = destinationsNow(deps, pods);
    gate.allow({ pods, tcp, udp });
    flows.recheck();
    relay.allow(pods);
    const ports = await portsFor(udp, until);
    lacks.addresses(pods, [...new Set([...cluster, ...hostsOf(tcp)])], until);
    const ipv6 = { pods: addresses.listIPv6(), addresses: addressesIPv6 };
    const now: Redirections = { port: relay.port, pods, tcp, udp: ports, addresses: cluster, ipv6 };
    const text = rulesText(rootDir, now, applied);
    if (text === "") return;
    applied = undefined;
    await applyRules(host, text, until);
    applied = now;
  });
  const follow = throttle(() => void sync().catch(fail), followMs, clock);
  await sync();
  stack.defer(services.onChange(follow));
  for (const watched of Object.values(deps.headless ?? {})) stack.defer(watched.onChange(follow));
  // Most changes of observed pods do not change their addresses.
  const followPods = () => (addresses.list().join() === applied?.pods.join() ? undefined : follow());
  stack.defer(addresses.onChange(followPods));
  deps.ready({ sync });
  void relay.ended.then(
    (said) => fail(new CodedError("unavailable", `the relay on the target exited: ${said || "no output"}`)),
    fail,
  );
  await onAbort(until);
  if (failure && !signal.aborted) throw failure.error;
}

/** Requests UDP ports from the relay when the destinations have changed. */
function datagramPorts(relay: Relay, lacks: ReturnType<typeof createLacks>) {
  let ports: Redirections["udp"] = [];
  let asked = "";
  return async (wanted: readonly string[], signal: AbortSignal): Promise<Redirections["udp"]> => {
    if (asked === wanted.join()) return ports;
    ports = await untilAborted(relay.listen(wanted), signal);
    asked = wanted.join();
    lacks.datagrams(wanted, ports);
    return ports;
  };
}

/** Current destinations in the cluster. A headless endpoint with the address of one of this node's pods is that pod and is omitted. */
function destinationsNow({ services, headless, reaches, nodeName }: WayDeps, pods: readonly string[]): Destinations {
  const known = services.list() ?? [];
  const { tcp, ...rest } = destinationsOf(known, reaches);
  if (known.length > 0 && rest.addresses.length === 0) throw new CodedError("failed_precondition", withoutIPv4);
  const single = headlessDestinations(
    headless?.endpoints.list() ?? [],
    headless?.services.list() ?? [],
    nodeName,
    reaches,
  );
  const elsewhere = single.filter((to) => !pods.includes(destinationOf(to)?.host ?? ""));
  return { ...rest, tcp: [...new Set([...tcp, ...elsewhere])].sort() };
}
