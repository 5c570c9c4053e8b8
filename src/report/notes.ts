import type { Clock } from "../lib/clock.ts";
import type { EventType } from "../pipeline.ts";
import type { ReportedNode, EventObject } from "./reported-node.ts";
import { createSignal } from "../lib/signal.ts";
import type { ObservedFleet } from "./fleet-report.ts";

/** An event written by a node, or a warning or error of graftlet's log. When a note is repeated, it keeps its number and gets a new
 *  time. */
export interface Note {
  readonly id: number;
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly times: number;
  readonly source: "event" | "log";
  /** Empty for notes that do not concern a single node. */
  readonly node: string;
  readonly level: "normal" | "warning" | "error";
  readonly about: string;
  readonly reason: string;
  readonly text: string;
}

/** The last events and warnings of a process. */
export interface Notes {
  /** All notes, per source, oldest first. */
  all(): readonly Note[];
  /** Calls back with each new note. @returns a function that unsubscribes. */
  onNote(listener: (note: Note) => void): () => void;
}

/** The nodes of a process, and their latest events and warnings. */
export interface Reports {
  /** The current nodes. */
  readonly nodes: readonly ReportedNode[];
  /** Calls back when a node is added or removed. @returns a function that unsubscribes. */
  onNodesChange(listener: () => void): () => void;
  readonly notes: Notes;
  /** The release whose GraftedNodes the process serves; absent if it serves none. */
  readonly fleet?: ObservedFleet;
}

/** Number of notes kept, of events and of the log each. */
const maxNotes = 200;

export function createNotes(clock: Pick<Clock, "now">) {
  const added = createSignal<[note: Note]>();
  const kept: Record<Note["source"], Note[]> = { event: [], log: [] };
  let last = 0;
  const keep = (note: NewNote) => {
    const notes = kept[note.source];
    const before = notes.findIndex((other) => isSame(note, other));
    const [{ id, times } = { id: (last += 1), times: 0 }] = before < 0 ? [] : notes.splice(before, 1);
    const noted = { ...note, id, times: times + 1, at: clock.now() };
    notes.push(noted);
    if (notes.length > maxNotes) notes.shift();
    added.send(noted);
  };
  return {
    all: () => [...kept.event, ...kept.log],
    onNote: added.subscribe,
    /** Adds a JSON line of the process's log if it is a warning or an error. */
    line(text: string) {
      const note = noteOf(text);
      if (note) keep(note);
    },
    event(node: string, { kind = "", namespace, name }: EventObject, type: EventType, reason: string, message: string) {
      const about = [kind, namespace, name].filter(Boolean).join("/");
      const level = type === "Warning" ? "warning" : "normal";
      keep({ source: "event", node, level, about, reason, text: message });
    },
  };
}

/** A note before it is numbered. */
type NewNote = Omit<Note, "id" | "at" | "times">;

function isSame(one: NewNote, other: NewNote): boolean {
  return (["text", "about", "reason", "node", "level"] as const).every((field) => one[field] === other[field]);
}

/** Converts a warning or error of the log to a note, with its fields node, pod, reason and the error's message. Pure. */
export function noteOf(line: string): NewNote | undefined {
  const warning = warningOf(line);
  if (!warning) return undefined;
  const { level, node, pod: about, reason, message, cause } = warning;
  return { source: "log", node, level, about, reason, text: [message, cause].filter(Boolean).join(": ") };
}

/** A warning or error line of the log. Missing fields are empty. */
interface LogWarning {
  readonly level: "warning" | "error";
  readonly node: string;
  readonly pod: string;
  readonly reason: string;
  readonly message: string;
  readonly cause: string;
}

/** Where pino writes the level, and the levels from which a line is a warning or an error. */
const levelOf = /^\{"level":(\d+),/;
const [warning, error] = [40, 50];

/** Parses a JSON log line. Pure. @returns undefined, without parsing, for a line that is neither a warning nor an error. */
function warningOf(line: string): LogWarning | undefined {
  const level = Number(levelOf.exec(line)?.[1] ?? 0);
  if (level < warning) return undefined;
  const { node, pod, reason, err, why, msg } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const cause = text(why) || (typeof err === "object" && err && "message" in err ? text(err.message) : text(err));
  return {
    level: level >= error ? "error" : "warning",
    node: text(node),
    pod: text(pod),
    reason: text(reason),
    message: text(msg),
    cause,
  };
}
