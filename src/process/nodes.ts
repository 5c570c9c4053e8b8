import { randomUUID } from "node:crypto";
import type { OptionsOf } from "../config/parse-result.ts";
import { systemClock } from "../lib/clock.ts";
import { limitInformationalAnswers } from "../lib/informational-answers.ts";
import { type ClockAndLog, createProcessLog } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import { createTunnelLimits } from "../service-tunnel/tunnel-limits.ts";
import { createFleetRun, type FleetRunDeps } from "./fleet.ts";
import { type NodeRun, runNode } from "./node-run.ts";
import { createSharedReads } from "../api/shared-reads.ts";
import { createSharedWatches } from "../api/shared-watches.ts";
import { createLiveness } from "../node/liveness.ts";
import { createReadiness } from "../node/readiness.ts";
import type { PageDeps } from "../page/server.ts";
import { createReportedNodes } from "../report/reported-nodes.ts";
import { createNotes, type Reports } from "../report/notes.ts";
import type { OutsideReplica } from "./outside-replica.ts";
import { createObjectsMetrics } from "./objects-metrics.ts";
import { processReport, createStatusSocket } from "./status-socket.ts";
import { createUnhandledErrorHandler } from "./unhandled-errors.ts";
import { notifyServiceManager } from "./service-manager.ts";
import type { ProviderFactory, Sharing } from "../seams/provider.ts";
import { createStaticNodesRun } from "./static-nodes.ts";
import { createHealthzServer } from "../server/healthz.ts";
import { createProfiles } from "../server/profiler.ts";
import { createKubeletApi } from "../server/app.ts";
import { createUnauthenticatedConnections, processConnectionLimits } from "../server/unauthenticated-connections.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

export interface RunNodesOptions extends OptionsOf<"run"> {
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Environment variables of the process; in a Pod they contain the API server's address. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Removes everything that a node created on its machine, as `graftlet remove` does. */
  readonly cleanMachine: FleetRunDeps["cleanMachine"];
  /** Returns the listeners at which machines enrol. */
  readonly listeners: FleetRunDeps["listeners"];
  /** Set for a replica outside the cluster. */
  readonly outside?: OutsideReplica | undefined;
  readonly signal: AbortSignal;
}

/** Runs nodes concurrently until the signal aborts. A failed node does not stop the others.
 *  @returns false if a node failed; each failure is printed as one line on standard error.
 *  @throws CodedError, one sentence, if the health endpoint cannot be opened, or systemd's watchdog timeout is too short. */
export async function runNodes(options: RunNodesOptions): Promise<boolean> {
  const { nodes, logging, warnings, defaults, health, page, signal } = options;
  const clock = systemClock();
  const notes = createNotes(clock);
  const { log, verbosity } = createProcessLog(logging, clock, notes.line);
  const names = nodes.map(({ nodeName }) => nodeName);
  log.info({ version: graftletVersion, kubelet: kubeletVersion, nodes: names }, "graftlet is starting");
  if (defaults.length > 0) log.warn({ instead: defaults }, "some kubelet defaults are not supported");
  for (const { node, text } of warnings) log.warn({ node }, text);
  const instance = randomUUID();
  const uses = createRuntimeUses();
  const readiness = createReadiness(names, clock);
  const liveness = createLiveness();
  const managed = notifyServiceManager({ ...options, readiness, liveness, clock, log });
  using _informational = limitInformationalAnswers();
  using unhandledErrors = createUnhandledErrorHandler({ clock, log, exit: () => process.exit(1) });
  const { several, providers, env, flags } = options;
  const common = {
    several,
    unhandledErrors,
    providers,
    env,
    outsideAccount: options.outside?.account,
    flags,
    liveness,
    instance,
    uses,
    readiness,
    kubeletApi: createKubeletApi(),
    unauthenticated: createUnauthenticatedConnections(processConnectionLimits),
    tunnelLimits: createTunnelLimits(),
    ...createSharedAccess({ clock, log }),
    verbosity,
    profiles: createProfiles(clock),
    clock,
  };
  const reported = createReportedNodes(page && notes.event);
  const runs = nodes.map((config) => {
    const report = reported.add(config.nodeName, config.provider);
    return { ...common, config, log: log.child({ node: config.nodeName }), report } satisfies NodeRun;
  });
  await using stack = new AsyncDisposableStack();
  const fleet =
    options.fleet &&
    stack.use(
      createFleetRun({
        ...options,
        fleet: options.fleet,
        common: { ...common, log },
        usedPorts: usedPorts(options),
        configured: new Set(names),
        reported,
        replica: options.outside?.replica,
      }),
    );
  const shown =
    options.nodeObjects && stack.use(createStaticNodesRun({ ...options.nodeObjects, nodes: runs, env, clock, log }));
  const metrics = stack.use(await createMetrics(options, { fleet, shown, clock, log }));
  const reports: Reports = { ...reported, notes, ...(fleet && { fleet: fleet.observed.release }) };
  const status = createStatus(options, reports, { clock, log });
  const over = new AbortController();
  let ends: readonly boolean[] = [];
  const all: Runnable = {
    name: "nodes",
    async run(stop) {
      const served = Promise.all([fleet?.run(stop), shown?.run(stop)]);
      ends = await Promise.all(runs.map((run) => runNode(run, stop)));
      await served;
      over.abort();
    },
  };
  const { sharing } = uses;
  const healthz = health ? [createHealthzServer({ ...health, sharing, instance, readiness, clock, log })] : [];
  const statusPage = page ? [await createStatusPage({ ...page, reports, version: graftletVersion, clock, log })] : [];
  await runGroup(
    [...healthz, ...statusPage, ...(metrics ? [metrics] : []), ...status, all, ...managed],
    AbortSignal.any([signal, over.signal]),
  );
  return !ends.includes(false);
}

/** Returns the ports that the process itself, or one of its configured nodes, listens on. */
function usedPorts({ nodes, health, page, metrics, fleet }: RunNodesOptions): readonly number[] {
  const ofProcess = [health?.port, page?.port, metrics?.port, fleet?.listener?.port].filter(
    (port) => port !== undefined,
  );
  return [...ofProcess, ...nodes.flatMap(({ kubelet: { port, healthzPort } }) => [port, healthzPort])];
}

/** Creates the socket for `graftlet status`, unless it is disabled. */
function createStatus(
  { statusSocket: path }: RunNodesOptions,
  reports: Reports,
  { clock, log }: ClockAndLog,
): readonly Runnable[] {
  const report = processReport(reports, clock);
  return path ? [createStatusSocket({ path, report, log })] : [];
}

interface Objects extends ClockAndLog {
  readonly fleet: Pick<ReturnType<typeof createFleetRun>, "observed"> | undefined;
  readonly shown: Pick<ReturnType<typeof createStaticNodesRun>, "nodes"> | undefined;
}

/** Creates the server of the metrics of all GraftedNodes, unless it is disabled. */
async function createMetrics(
  { metrics: endpoint, env }: RunNodesOptions,
  { fleet, shown, clock, log }: Objects,
): Promise<(Runnable & AsyncDisposable) | undefined> {
  const objects = {
    nodes: () => [...(fleet?.observed.nodes() ?? []), ...(shown?.nodes() ?? [])],
    pools: () => fleet?.observed.pools() ?? [],
    sharing: () => fleet?.observed.sharing(),
  };
  return endpoint && createObjectsMetrics({ endpoint, objects, env, clock, log });
}

/** Creates the status page; its code is loaded only if it is enabled. */
async function createStatusPage(deps: PageDeps): Promise<Runnable> {
  const { createPage } = await import("../page/server.ts");
  return createPage(deps);
}

/** Creates what the nodes of the process watch and read together. */
function createSharedAccess({ clock, log }: ClockAndLog): Pick<NodeRun, "watches" | "reads"> {
  return { watches: createSharedWatches({ clock, log }), reads: createSharedReads(clock) };
}

/** Creates the record of how nodes use runtimes on graftlet's own machine. */
function createRuntimeUses(): NodeRun["uses"] & { sharing(): Sharing | undefined } {
  const uses = new Map<string, Sharing>();
  return {
    note(nodeName, use) {
      if (use) uses.set(nodeName, use);
      else uses.delete(nodeName);
    },
    sharing() {
      const all = [...uses.values()];
      return all.includes("exclusive") ? "exclusive" : all[0];
    },
  };
}
