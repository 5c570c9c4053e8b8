import { setFlagsFromString } from "node:v8";
import type { FleetConfig } from "../config/fleet-configuration.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { createFleet, type FleetDeps } from "../fleet/fleet.ts";
import type { LeavingDeps } from "../fleet/leaving.ts";
import type { Replica } from "../fleet/own-lease.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { type Logger, silentLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createNodeMetrics, type NodeMetrics } from "../metrics/node-metrics.ts";
import { ownAddresses } from "../node/own-name.ts";
import type { createReportedNodes } from "../report/reported-nodes.ts";
import { command } from "../seams/command.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";
import { openAccountClient } from "./account-client.ts";
import { clientFor, obtainIdentity } from "./identity.ts";
import { type NodeRun, runNode } from "./node-run.ts";
import { openTarget } from "./open-target.ts";

export interface FleetRunDeps {
  readonly fleet: FleetConfig;
  /** Parts that all nodes of the process share. */
  readonly common: Omit<NodeRun, "config" | "report">;
  /** Ports of the process's own listeners. */
  readonly usedPorts: readonly number[];
  /** Names of the nodes of the configuration. */
  readonly configured: ReadonlySet<string>;
  readonly reported: Pick<ReturnType<typeof createReportedNodes>, "add">;
  readonly cleanMachine: LeavingDeps["clean"];
  readonly listeners: FleetDeps["listeners"];
  /** This process among the replicas, outside the cluster; in a Pod, its service account's token says which Pod it is. */
  readonly replica?: Replica | undefined;
}

/** Rate limit of the service account's requests, shared by all GraftedNodes. */
const requests = { qps: 200, burst: 400 };
/** Time limit for obtaining the client certificate of a node that is being removed, milliseconds. */
const identityTimeoutMs = 30_000;
/** Growth of the heap at which V8 collects garbage, percent. Other processes use 100; with hundreds of machines, the heap is large. */
const heapGrowingPercent = 50;
/** Name of what readiness waits for until the objects have been listed. */
const listName = "the list of GraftedNodes";

/** Creates the service that serves the GraftedNodes of the Pod's namespace, with the Pod's service account.
 *  @throws CodedError, one sentence, if there is no service account. */
export function createFleetRun(
  deps: FleetRunDeps,
): Runnable & AsyncDisposable & Pick<ReturnType<typeof createFleet>, "observed"> {
  const { common, fleet, usedPorts, configured, reported, cleanMachine } = deps;
  const { clock, log, env, outsideAccount, readiness } = common;
  const {
    access,
    client,
    connections: accountConnections,
  } = openAccountClient({ env, outsideAccount, clock, log }, "a fleet", requests);
  const namespace = access.namespace();
  const self = deps.replica ?? access.pod();
  if (!self)
    throw new CodedError(
      "failed_precondition",
      "the service account's token is not bound to a Pod, so that replicas cannot be told apart; mount the token that the kubelet requests for the Pod",
    );
  readiness.expect(listName);
  setFlagsFromString(`--heap-growing-percent=${heapGrowingPercent}`);
  const logOf = (name: string): Logger => log.child({ node: name });
  const run = createFleet({
    ...common,
    fleet,
    client,
    namespace,
    self,
    usedPorts,
    addresses: () => fleet.outside?.addresses ?? ownAddresses(),
    isConfigured: (name) => configured.has(name),
    addNode(name) {
      readiness.expect(name);
      const report = reported.add(name, "ssh");
      return {
        report,
        log: logOf(name),
        [Symbol.dispose]() {
          readiness.markReady(name);
          report[Symbol.dispose]();
        },
      };
    },
    onListed: () => readiness.markReady(listName),
    run: (config, { metadata: configuredMetadata, ...parts }, signal) =>
      runNode(
        { ...common, accountConnections, ...parts, config, configuredMetadata, log: logOf(config.nodeName) },
        signal,
      ),
    async withNodeClient(config, work, signal) {
      const asking = {
        config,
        env,
        outsideAccount,
        accountConnections,
        clock,
        log: logOf(config.nodeName),
        measures: unreadMeasures(config, clock),
      };
      await using identity = await obtainIdentity(asking, clock.within(identityTimeoutMs, signal));
      await using nodeClient = clientFor(asking, identity.access);
      return await work(nodeClient);
    },
    async reach(config, signal) {
      await using target = await openTarget({ config, providers: common.providers, clock, log: silentLog() });
      await target.host.run(command("true"), { signal });
    },
    clean: cleanMachine,
    listeners: deps.listeners,
  });
  return { ...run, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
}

/** Metrics for the few requests of a node that is being removed; they are not exported. */
function unreadMeasures({ nodeName }: NodeConfig, clock: Clock): NodeMetrics["measures"] {
  return createNodeMetrics({ clock, nodeName, kubeletVersion, graftletVersion, gates: [] }).measures;
}
