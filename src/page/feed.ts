import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { type Runnable, onAbort, runGroup } from "../lib/runnables.ts";
import type { ReportedNode } from "../report/reported-node.ts";
import type { Note, Reports } from "../report/notes.ts";
import type { Viewer } from "./access.ts";
import { createFleetFeed } from "./fleet-feed.ts";
import type { Message } from "./messages.ts";
import { nodeView, podView, usageView } from "./node-view.ts";

export interface FeedSubscriber extends Viewer {
  /** Sends a JSON message.
   *  @param about a later message with the same value replaces an unsent one; undefined for messages that must all be sent. */
  send(message: string, about?: string): void;
}

export type Feed = ReturnType<typeof createFeed>;

export interface FeedDeps extends ClockAndLog {
  readonly reports: Reports;
  readonly version: string;
}

/** Polling interval and timeout per node, milliseconds. Usage comes from the kubelet API's samples, which are taken every ten seconds at
 *  most. */
const pollIntervalMs = 3_000;
const pollTimeoutMs = 30_000;

/** Last message of each kind from one node. */
interface LatestMessages {
  node?: string;
  pods?: string;
  usage?: string;
}

/** Polls the nodes while there are subscribers: starts with the first and ends with the last, whose cached messages are discarded. Subscribers
 *  that may see them are also told about the machines of other replicas. */
export function createFeed(deps: FeedDeps) {
  const { reports, version, clock } = deps;
  const listeners = new Set<FeedSubscriber>();
  const latest = new Map<string, LatestMessages>();
  const others = reports.fleet && createFleetFeed(reports.fleet, deps);
  let polling: { readonly stop: AbortController; readonly done: Promise<void> } | undefined;
  let ended: Promise<unknown> = Promise.resolve();

  const publish = (node: string, kind: "node" | "pods" | "usage", message: Message) => {
    const text = JSON.stringify(message);
    const known = latest.get(node) ?? {};
    if (known[kind] === text) return;
    latest.set(node, { ...known, [kind]: text });
    for (const listener of listeners) if (listener.maySee(node)) listener.send(text, `${kind} ${node}`);
  };
  const start = () => {
    const stop = new AbortController();
    const rounds = reports.nodes.map((node) => pollNode(node, deps, publish));
    const forget = reports.notes.onNote((note) => {
      for (const listener of listeners) sendNotes(reports, listener, [note]);
    });
    polling = { stop, done: runGroup(rounds, stop.signal).finally(forget) };
  };
  const end = () => {
    polling?.stop.abort();
    ended = Promise.all([ended, polling?.done]);
    polling = undefined;
    latest.clear();
  };
  /** Sends a subscriber the list of nodes that it may see and their latest messages. The list replaces everything that the subscriber
   *  received before. */
  const greet = (listener: FeedSubscriber) => {
    const nodes = reports.nodes.map(({ name }) => name).filter((name) => listener.maySee(name));
    const fleet = others !== undefined && listener.maySeeFleet;
    listener.send(
      JSON.stringify({ kind: "hello", version, now: clock.now(), nodes, fleet } satisfies Message),
      "hello",
    );
    for (const name of nodes) {
      const known = latest.get(name) ?? {};
      for (const kind of ["node", "pods", "usage"] as const) {
        const text = known[kind];
        if (text !== undefined) listener.send(text, `${kind} ${name}`);
      }
    }
    sendNotes(reports, listener, reports.notes.all());
  };
  return {
    name: "page feed",
    /** Sends the current state, then every change. @returns a function that ends the subscription. */
    subscribe(listener: FeedSubscriber): () => void {
      greet(listener);
      listeners.add(listener);
      if (listeners.size === 1) start();
      const leave = listener.maySeeFleet ? others?.subscribe(listener) : undefined;
      return () => {
        leave?.();
        if (listeners.delete(listener) && listeners.size === 0) end();
      };
    },
    async run(signal: AbortSignal) {
      const forget = reports.onNodesChange(() => {
        if (!polling) return;
        end();
        for (const listener of listeners) greet(listener);
        start();
        others?.changed();
      });
      await onAbort(signal);
      forget();
      listeners.clear();
      end();
      await Promise.all([ended, others?.end()]);
    },
  };
}

/** Sends notes of nodes that the subscriber may see; notes about no node are sent only to those who may see all nodes. */
function sendNotes({ nodes }: Reports, listener: FeedSubscriber, all: readonly Note[]): void {
  const seesAll = nodes.every(({ name }) => listener.maySee(name));
  const notes = all.filter(({ node }) => (node === "" ? seesAll : listener.maySee(node)));
  if (notes.length > 0) listener.send(JSON.stringify({ kind: "notes", notes } satisfies Message));
}

type Publish = (node: string, kind: "node" | "pods" | "usage", message: Message) => void;

function pollNode(of: ReportedNode, { clock, log }: FeedDeps, tell: Publish): Runnable {
  const { name, provider } = of;
  return runPeriodically({ name: `page of ${name}`, intervalMs: pollIntervalMs, clock, log }, async (signal) => {
    const work = of.introspection();
    const link = of.link() ?? "unknown";
    const trouble = typeof link === "string" ? undefined : link.trouble();
    const shown = { name, provider, node: work?.node(), running: work !== undefined };
    const way = trouble ?? (typeof link === "string" ? link : "up");
    tell(name, "node", { kind: "node", node: nodeView({ ...shown, link: way }) });
    if (!work) return;
    tell(name, "pods", { kind: "pods", node: name, pods: work.pods().map(podView) });
    if (trouble) return;
    try {
      const summary = await work.summary(clock.within(pollTimeoutMs, signal));
      if (!signal.aborted) tell(name, "usage", { kind: "usage", node: name, usage: usageView(summary, clock.now()) });
    } catch (err) {
      if (!signal.aborted) log.debug({ err, node: name }, "cannot measure usage for the page");
    }
  });
}
