import type { NodeView, UsageView } from "../messages.ts";
import { make } from "./dom.ts";
import { bytes, cores } from "./format.ts";
import type { Model, Scope } from "./model.ts";

type Choose = (scope: Scope) => void;

/** Draws the list of nodes with their state, link and utilization. */
export function drawNodes(into: HTMLElement, model: Model, scope: Scope, choose: Choose): void {
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
  into.replaceChildren(...(model.nodes.length > 1 ? [all] : []), ...cards);
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
