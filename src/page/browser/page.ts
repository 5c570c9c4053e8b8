import type { Message } from "../messages.ts";
import { part, setText } from "./dom.ts";
import { count } from "./format.ts";
import { type Scope, newModel, take } from "./model.ts";
import { drawNodes } from "./nodes.ts";
import { drawNotes } from "./notes.ts";
import { createPlots } from "./plots.ts";
import { createPodTable } from "./pods.ts";
import { drawScope } from "./scope.ts";

const model = newModel();
let scope: Scope = {};
let waiting = false;

const plots = createPlots(part("plots"));
const table = createPodTable(part("pods"), choose);

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
    const only = model.nodes.length === 1 && scope.node === undefined ? model.nodes[0] : undefined;
    if (only !== undefined) scope = { node: only };
    setText(part("version"), model.version);
    setText(part("totals"), totals());
    drawNodes(part("nodes"), model, scope, choose);
    drawScope(part("scope"), model, scope, choose);
    plots.draw(model, scope);
    table.draw(model, scope);
    drawNotes(part("notes"), model, scope);
  });
}

function totals(): string {
  const pods = model.nodes.reduce((sum, name) => sum + (model.pods.get(name)?.length ?? 0), 0);
  return `${count(model.nodes.length, "node")}, ${count(pods, "pod")}`;
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
