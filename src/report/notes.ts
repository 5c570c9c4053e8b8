import type { Clock } from "../lib/clock.ts";
import { warningOf } from "../lib/log-warning.ts";
import type { Note } from "./messages.ts";
import type { NodePage, PageLink, PageView } from "./view.ts";

/** What the nodes of the process have given to the page, and their last events and errors. */
export interface PageBook {
  readonly nodes: readonly PageNode[];
  notes(): readonly Note[];
  /** A line of the process's log, as JSON; kept if it is a warning or an error. */
  line(text: string): void;
  /** Calls back with each new note. @returns what stops that. */
  onNote(listener: (note: Note) => void): () => void;
  /** Calls back when a node shows another view. @returns what stops that. */
  onView(listener: () => void): () => void;
}

export interface PageNode {
  readonly name: string;
  readonly provider: string;
  view(): PageView | undefined;
  /** `local` for a target that is this machine; undefined while there is none. */
  link(): PageLink | "local" | undefined;
}

/** Newest notes kept, of events and of the log each. */
const keptNotes = 200;

/** @param nodes names and providers. */
export function createPageBook(
  nodes: readonly { readonly nodeName: string; readonly provider: string }[],
  clock: Pick<Clock, "now">,
): PageBook & { readonly pageOf: (nodeName: string) => NodePage | undefined } {
  const news = createNews<Note>();
  const views = createNews<void>();
  const kept: Record<Note["source"], Note[]> = { event: [], log: [] };
  let last = 0;
  const keep = (note: NewNote) => {
    const notes = kept[note.source];
    const before = notes.findIndex((other) => isSame(note, other));
    const [{ id, times } = { id: (last += 1), times: 0 }] = before < 0 ? [] : notes.splice(before, 1);
    const noted = { ...note, id, times: times + 1, at: clock.now() };
    notes.push(noted);
    if (notes.length > keptNotes) notes.shift();
    news.tell(noted);
  };
  const pages = new Map(
    nodes.map(({ nodeName: name, provider }) => [name, createNodePage({ name, provider }, keep, views.tell)]),
  );
  return {
    nodes: [...pages.values()],
    pageOf: (name) => pages.get(name),
    notes: () => [...kept.event, ...kept.log],
    line(text) {
      const note = noteOf(text);
      if (note) keep(note);
    },
    onNote: news.listen,
    onView: views.listen,
  };
}

/** A note before it is numbered. */
type NewNote = Omit<Note, "id" | "at" | "times">;

function isSame(one: NewNote, other: NewNote): boolean {
  return (["text", "about", "reason", "node", "level"] as const).every((field) => one[field] === other[field]);
}

function createNews<T>(): { tell(what: T): void; listen(listener: (what: T) => void): () => void } {
  const listeners = new Set<(what: T) => void>();
  return {
    tell(what) {
      for (const listener of listeners) listener(what);
    },
    listen(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

function createNodePage(
  of: Pick<PageNode, "name" | "provider">,
  keep: (note: NewNote) => void,
  onView: () => void,
): PageNode & NodePage {
  let view: PageView | undefined;
  let link: PageLink | "local" | undefined;
  return {
    ...of,
    view: () => view,
    link: () => link,
    linked: (now) => void (link = now ?? "local"),
    show(now) {
      view = now;
      onView();
    },
    event({ kind = "", namespace, name }, type, reason, message) {
      const about = [kind, namespace, name].filter(Boolean).join("/");
      const level = type === "Warning" ? "warning" : "normal";
      keep({ source: "event", node: of.name, level, about, reason, text: message });
    },
  };
}

/** A warning or an error of the log as a note. Pure. Of its fields the node, the pod, the reason and the error's message are taken. */
export function noteOf(line: string): NewNote | undefined {
  const told = warningOf(line);
  if (!told) return undefined;
  const { level, node, pod: about, reason, message, cause } = told;
  return { source: "log", node, level, about, reason, text: [message, cause].filter(Boolean).join(": ") };
}
