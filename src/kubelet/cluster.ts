import { createClaims } from "../api/claims.ts";
import { createEventRecorder } from "../api/events.ts";
import {
  createHeadlessEndpoints,
  createHeadlessServices,
  createNodeWatch,
  createServiceLister,
  type ListerDeps,
} from "../api/listers.ts";
import { createObjectCaches } from "../api/objects.ts";
import { createRuntimeClasses } from "../api/runtime-classes.ts";
import { createServiceAccounts } from "../api/service-accounts.ts";
import { createTokenSigners } from "../api/token-signers.ts";
import { createTokenSource } from "../api/tokens.ts";
import type { Clock } from "../lib/clock.ts";
import { type Service, untilAborted } from "../lib/service-group.ts";
import type { NodeReporter } from "../report/reported-node.ts";
import type { Cluster, NodeContext } from "./deps.ts";
import { staticSources } from "./settings.ts";
import { loggedEvents, noNode, noServices } from "./standalone.ts";

const firstListTimeoutMs = 2_000;

/** Creates the watches of cluster objects for this node; a standalone node has no Node, no Services, and no referenced objects. */
export function observeCluster(context: NodeContext): Cluster {
  const { config, standalone, client, clock, log } = context;
  const { kubelet, nodeName } = config;
  const common = { client, clock, log };
  const { eventRecordQPS: qps, eventBurst: burst } = kubelet;
  const recorder = standalone
    ? loggedEvents(log)
    : createEventRecorder({ ...common, component: "kubelet", host: nodeName, qps, burst });
  const { event } = context.report;
  const events = event ? reportedEvents(recorder, event) : recorder;
  const nodes = standalone ? noNode : createNodeWatch({ ...common, nodeName });
  const services = standalone ? noServices : createServiceLister(common);
  const runtimeClasses = createRuntimeClasses(common);
  const objects = createObjectCaches(common);
  const signers = createTokenSigners(clock);
  const tokens = createTokenSource({ ...common, signers });
  const { signals } = context.hand("nodeWatch");
  nodes.onChange((node) => {
    // A deleted Node is registered again immediately.
    if (!node) signals.nodeChanged.send();
    signals.mirrorsChanged.send();
  });
  // Containers wait for the Services, which are part of their environment: pods that came first need not wait for their retry delay.
  const { signals: waiting } = context.hand("serviceWatch");
  const forget = services.onChange(() => {
    forget();
    waiting.retry.send();
  });
  // The API server itself may be a static pod: a node with static pods does not wait for it.
  const withoutLongWait = {
    ...nodes,
    ready: (signal: AbortSignal) => withTimeout(firstListTimeoutMs, nodes.ready, clock, signal),
  };
  const first = staticSources(config).length > 0 ? withoutLongWait : nodes;
  const { account, target } = context;
  const headless = account && target.network?.tunneled ? watchHeadless(common, account) : undefined;
  const watching: readonly Service[] = standalone
    ? []
    : [first, services, runtimeClasses, ...(headless ? [headless.services, headless.endpoints] : [])];
  return {
    events,
    nodes,
    services,
    ...(headless && { headless }),
    runtimeClasses,
    objects,
    claims: createClaims(common),
    accounts: createServiceAccounts(common),
    tokens,
    signers,
    running: [events, ...watching, objects, tokens],
  };
}

/** Watches headless Services with the node's identity, and their endpoints with the service account of graftlet's Pod. */
function watchHeadless(common: ListerDeps, { client }: Pick<ListerDeps, "client">): NonNullable<Cluster["headless"]> {
  return { services: createHeadlessServices(common), endpoints: createHeadlessEndpoints({ ...common, client }) };
}

/** An event sink that also reports events to the process. */
function reportedEvents(written: Cluster["events"], report: NonNullable<NodeReporter["event"]>): Cluster["events"] {
  return {
    ...written,
    event(...of) {
      const [about, type, reason, message] = of;
      report(about, type, reason, message);
      written.event(...of);
    },
  };
}

async function withTimeout(
  ms: number,
  ready: (signal: AbortSignal) => Promise<void>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const patience = clock.within(ms, signal);
  await untilAborted(ready(patience), patience).catch(() => undefined);
}
