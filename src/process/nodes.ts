import { randomUUID } from "node:crypto";
import type { OptionsOf } from "../config/command-line.ts";
import { systemClock } from "../lib/clock.ts";
import { limitInformationalAnswers } from "../lib/informational-answers.ts";
import { createProcessLog } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import { createTunnelLimits } from "../service-tunnel/tunnel-limits.ts";
import { type NodeRun, runNode } from "./node-run.ts";
import { createLiveness } from "../node/liveness.ts";
import { createReadiness } from "../node/readiness.ts";
import type { PageDeps } from "../page/server.ts";
import { createReportedNode, type ReportedNode } from "../report/reported-node.ts";
import { createNotes, type Reports } from "../report/notes.ts";
import { processReport, createStatusSocket } from "./status-socket.ts";
import { createUnhandledErrorHandler } from "./unhandled-errors.ts";
import { notifyServiceManager } from "./service-manager.ts";
import type { ProviderFactory, Sharing } from "../seams/provider.ts";
import { createHealthzServer } from "../server/healthz.ts";
import { createProfiles } from "../server/profiler.ts";
import { createUnauthenticatedConnections, processConnectionLimits } from "../server/unauthenticated-connections.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

export interface RunNodesOptions extends OptionsOf<"run"> {
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Environment of the process: locates the API server in a Pod. */
  readonly env: Readonly<Record<string, string | undefined>>;
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
  log.info(
    { version: graftletVersion, kubelet: kubeletVersion, nodes: nodes.map(({ nodeName }) => nodeName) },
    "graftlet starts",
  );
  if (defaults.length > 0) log.warn({ instead: defaults }, "some kubelet defaults are not supported");
  for (const { node, text } of warnings) log.warn({ node }, text);
  const instance = randomUUID();
  const uses = createRuntimeUses();
  const readiness = createReadiness(
    nodes.map(({ nodeName }) => nodeName),
    clock,
  );
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
    flags,
    liveness,
    instance,
    uses,
    readiness,
    unauthenticated: createUnauthenticatedConnections(processConnectionLimits),
    tunnelLimits: createTunnelLimits(),
    verbosity,
    profiles: createProfiles(clock),
    clock,
  };
  const runs = nodes.map((config): NodeRun & { readonly report: ReportedNode } => {
    const { nodeName: name, provider } = config;
    const report = createReportedNode({ name, provider }, page && notes.event.bind(undefined, name));
    return { ...common, config, log: log.child({ node: name }), report };
  });
  const reports: Reports = { nodes: runs.map(({ report }) => report), notes };
  const processState = processReport(reports, clock);
  const status = options.statusSocket
    ? [createStatusSocket({ path: options.statusSocket, report: processState, log })]
    : [];
  const over = new AbortController();
  let ends: readonly boolean[] = [];
  const all: Runnable = {
    name: "nodes",
    async run(stop) {
      ends = await Promise.all(runs.map((run) => runNode(run, stop)));
      over.abort();
    },
  };
  const { sharing } = uses;
  const healthz = health ? [createHealthzServer({ ...health, sharing, instance, readiness, clock, log })] : [];
  const statusPage = page ? [await createStatusPage({ ...page, reports, version: graftletVersion, clock, log })] : [];
  await runGroup([...healthz, ...statusPage, ...status, all, ...managed], AbortSignal.any([signal, over.signal]));
  return !ends.includes(false);
}

/** Creates the status page; its code is loaded only if it is enabled. */
async function createStatusPage(deps: PageDeps): Promise<Runnable> {
  const { createPage } = await import("../page/server.ts");
  return createPage(deps);
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
