import type { Note } from "../messages.ts";
import { make } from "./dom.ts";
import { age } from "./format.ts";
import type { Model, Scope } from "./model.ts";

/** Maximum number of notes displayed per source. */
const most = 40;

/** Draws the latest events, and the latest warnings and errors of graftlet's log. */
export function drawNotes(into: HTMLElement, model: Model, scope: Scope): void {
  const name = scope.node === undefined ? undefined : podName(model, scope);
  const notes = model.notes.filter(
    ({ node, about }) =>
      scope.node === undefined || (node === scope.node && (name === undefined || about.endsWith(name))),
  );
  const of = (source: Note["source"]) => notes.filter((note) => note.source === source).slice(0, most);
  into.replaceChildren(
    column("Events", of("event"), model, "no events since graftlet started"),
    column("Warnings and errors", of("log"), model, "none in graftlet's log"),
  );
}

function podName(model: Model, { node = "", pod }: Scope): string | undefined {
  const found = (model.pods.get(node) ?? []).find(({ uid }) => uid === pod);
  return found && `${found.namespace}/${found.name}`;
}

function column(title: string, notes: readonly Note[], model: Model, none: string): Node {
  const list = notes.map((note) =>
    make("li", { class: note.level }, [
      make("span", { class: "faint", text: age(model.now - note.at) }),
      make("span", {}, [
        make("b", { text: note.reason || note.level }),
        make("span", { class: "faint", text: ` ${[note.about || note.node].filter(Boolean).join()}` }),
        make("span", { class: "faint", text: note.times > 1 ? ` ×${note.times}` : "" }),
        make("br"),
        make("span", { text: note.text }),
      ]),
    ]),
  );
  return make("div", {}, [
    make("h3", { text: title }),
    list.length > 0 ? make("ul", {}, list) : make("p", { class: "faint", text: none }),
  ]);
}
