import type { Message, NodeView, UsageView, Note } from "../messages.ts";
import { part, setText, make } from "./dom.ts";
import { count, bytes, cores, age } from "./format.ts";
import { createMachines } from "./machines.ts";
import { type Scope, newModel, take, type Model } from "./model.ts";
import { createPlots } from "./plots.ts";
import { createPodRows } from "./pods.ts";
import { drawScope } from "./scope.ts";

const model = newModel();
let scope: Scope = {};
let waiting = false;

const plots = createPlots(part("plots"));
const table = createPodRows(part("pods"), choose);
const machines = createMachines(part("machines"));

function choose(chosen: Scope): void {
  scope = chosen;
  draw();
}

/** Draws once per frame, for all messages received since the last one. */
function draw(): void {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const shown = shownScope();
    setText(part("version"), model.version);
    setText(part("totals"), totals());
    drawNodes(part("nodes"), model, shown, choose);
    drawScope(part("scope"), model, shown, choose);
    plots.draw(model, shown);
    table.draw(model, shown);
    machines.draw(model, shown);
    drawNotes(part("notes"), model, shown);
  });
}

/** What is displayed: the selection, unless its node has gone to another replica. A node that is the only one is always selected. */
function shownScope(): Scope {
  const [only] = hasOverview(model) ? [] : model.nodes;
  if (scope.node !== undefined && model.nodes.includes(scope.node)) return scope;
  return only === undefined ? {} : { node: only };
}

/** True unless everything on the page is about one node. */
function hasOverview({ nodes, fleet }: Model): boolean {
  return nodes.length > 1 || (fleet?.names.length ?? 0) > 0;
}

function totals(): string {
  const pods = model.nodes.reduce((sum, name) => sum + (model.pods.get(name)?.length ?? 0), 0);
  const others = model.fleet?.names.length ?? 0;
  const own = `${count(model.nodes.length, "node")}, ${count(pods, "pod")}`;
  return others > 0 ? `${own}; ${count(others, "other machine")}` : own;
}

function live(text: string, good: boolean): void {
  setText(part("live"), text);
  part("live").className = good ? "pill good" : "pill bad";
}

const feed = new EventSource("feed");
feed.addEventListener("open", () => live("live", true));
feed.addEventListener("error", () => live("disconnected, reconnecting", false));
feed.addEventListener("message", ({ data }: MessageEvent<string>) => {
  take(model, JSON.parse(data) as Message);
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

type Choose = (scope: Scope) => void;

/** Draws the list of nodes with their state, link and utilization. */
function drawNodes(into: HTMLElement, model: Model, scope: Scope, choose: Choose): void {
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset["node"] : undefined;
  const all = card(
    "",
    [make("b", { text: "All nodes" }), make("span", { class: "faint", text: `${model.nodes.length}` })],
    scope,
    choose,
  );
  const cards = model.nodes.map((name) => {
    const shown = model.shown.get(name);
    return card(name, shown ? nodeParts(shown, model) : [make("b", { text: name })], scope, choose);
  });
  into.replaceChildren(...(hasOverview(model) ? [all] : []), ...cards);
  if (focused !== undefined) into.querySelector<HTMLElement>(`[data-node="${CSS.escape(focused)}"]`)?.focus();
}

function card(name: string, parts: readonly Node[], scope: Scope, choose: Choose): HTMLElement {
  const chosen = (scope.node ?? "") === name;
  const button = make("button", { class: chosen ? "card chosen" : "card" }, parts);
  button.dataset["node"] = name;
  button.setAttribute("aria-pressed", String(chosen));
  button.addEventListener("click", () => choose(name === "" ? {} : { node: name }));
  return button;
}

function nodeParts(node: NodeView, model: Model): readonly Node[] {
  const usage = model.usage.get(node.name);
  const pods = model.pods.get(node.name)?.length ?? 0;
  const state = { Ready: "good", NotReady: "bad", Starting: "fair" }[node.state];
  const link = { local: "this machine", up: "link up", unknown: "not reached yet" }[node.link] ?? node.link;
  return [
    make("span", { class: `dot ${state}`, title: node.state }),
    make("b", { text: node.name }),
    make("span", { class: "faint right", text: node.maxPods > 0 ? `${pods} / ${node.maxPods} pods` : `${pods} pods` }),
    make("span", { class: "faint wide", text: `${node.state} · ${node.provider}, ${link}` }),
    ...bars(node, usage),
  ];
}

function bars(node: NodeView, usage: UsageView | undefined): readonly Node[] {
  const { cpu, memory } = usage?.node ?? {};
  return [
    bar("CPU", cpu, node.cpus, cores),
    bar("Memory", memory, node.memory, bytes),
    bar("Disk", usage?.disk?.used, usage?.disk?.capacity ?? 0, bytes),
  ].filter((each) => each !== undefined);
}

function bar(label: string, used: number | undefined, of: number, as: (value: number) => string): Node | undefined {
  if (used === undefined || of <= 0) return undefined;
  const meter = make("meter", { title: `${label}: ${as(used)} of ${as(of)}` });
  Object.assign(meter, { min: 0, max: of, low: of * 0.75, high: of * 0.9, optimum: 0, value: used });
  return make("label", { class: "bar" }, [
    make("span", { class: "faint", text: label }),
    meter,
    make("span", { text: `${Math.round((used / of) * 100)} %` }),
  ]);
}

/** Maximum number of notes displayed per source. */
const most = 40;

/** Draws the latest events, and the latest warnings and errors of graftlet's log. */
function drawNotes(into: HTMLElement, model: Model, scope: Scope): void {
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
