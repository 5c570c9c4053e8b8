import type { FleetMessage, MachineReport, Message, NodeView, Note, PodView, UsageView } from "../messages.ts";
import { type Track, addSample, newTrack } from "./history.ts";

/** State of the page, built from the messages received. */
export interface Model {
  version: string;
  /** Latest time that the server has sent; the server's clock is used, not the browser's. */
  now: number;
  nodes: readonly string[];
  readonly shown: Map<string, NodeView>;
  readonly pods: Map<string, readonly PodView[]>;
  readonly usage: Map<string, UsageView>;
  /** Samples, keyed by `node NAME`, `pod UID` or `container UID NAME`. */
  readonly tracks: Map<string, Track>;
  notes: readonly Note[];
  /** Undefined if the process serves no GraftedNodes, or they are not shown. */
  fleet: FleetModel | undefined;
}

/** The release: its replicas, and the machines that this process does not serve. */
export interface FleetModel extends Omit<FleetMessage, "kind" | "machines"> {
  readonly names: readonly string[];
  readonly machines: Map<string, MachineReport>;
}

/** What is displayed: everything, a node, or one of its pods. */
export interface Scope {
  readonly node?: string;
  readonly pod?: string;
}

const keptNotes = 400;

export const trackOf = {
  node: (name: string) => `node ${name}`,
  pod: (uid: string) => `pod ${uid}`,
  container: (uid: string, name: string) => `container ${uid} ${name}`,
};

export function newModel(): Model {
  return {
    version: "",
    now: 0,
    nodes: [],
    shown: new Map(),
    pods: new Map(),
    usage: new Map(),
    tracks: new Map(),
    notes: [],
    fleet: undefined,
  };
}

export function take(model: Model, message: Message): void {
  switch (message.kind) {
    case "hello":
      Object.assign(model, { version: message.version, nodes: message.nodes, notes: [] });
      if (!message.fleet) model.fleet = undefined;
      return later(model, message.now);
    case "node":
      return void model.shown.set(message.node.name, message.node);
    case "pods":
      forgetGone(model, model.pods.get(message.node) ?? [], message.pods);
      return void model.pods.set(message.node, message.pods);
    case "usage":
      return takeUsage(model, message.node, message.usage);
    case "notes": {
      const newer = new Set(message.notes.map(({ id }) => id));
      const all = [...message.notes, ...model.notes.filter(({ id }) => !newer.has(id))];
      model.notes = all.toSorted((one, other) => other.at - one.at || other.id - one.id).slice(0, keptNotes);
      return later(model, model.notes[0]?.at ?? 0);
    }
    case "fleet":
      return takeFleet(model, message);
    case "machine":
      return void model.fleet?.machines.set(message.machine.name, message.machine);
  }
}

/** Takes what is known of the release; machines that have gone are forgotten. */
function takeFleet(model: Model, { kind: _kind, machines: names, ...release }: FleetMessage): void {
  const standing = new Set(names);
  const machines = new Map([...(model.fleet?.machines ?? [])].filter(([name]) => standing.has(name)));
  model.fleet = { ...release, names, machines };
}

function later(model: Model, at: number): void {
  model.now = Math.max(model.now, at);
}

function takeUsage(model: Model, node: string, usage: UsageView): void {
  model.usage.set(node, usage);
  later(model, usage.at);
  const add = (key: string, measure: Parameters<typeof addSample>[2]) => {
    const track = model.tracks.get(key) ?? newTrack();
    model.tracks.set(key, track);
    addSample(track, usage.at, measure);
  };
  add(trackOf.node(node), usage.node);
  for (const [uid, { containers, ...pod }] of Object.entries(usage.pods)) {
    add(trackOf.pod(uid), pod);
    for (const [name, container] of Object.entries(containers)) add(trackOf.container(uid, name), container);
  }
}

/** Deletes samples of pods that are gone. */
function forgetGone(model: Model, before: readonly PodView[], now: readonly PodView[]): void {
  const standing = new Set(now.map(({ uid }) => uid));
  const gone = new Set(before.map(({ uid }) => uid).filter((uid) => !standing.has(uid)));
  if (gone.size === 0) return;
  for (const key of model.tracks.keys()) {
    const [kind, uid = ""] = key.split(" ");
    if (kind !== "node" && gone.has(uid)) model.tracks.delete(key);
  }
}
