import { make, setText } from "./dom.ts";
import { age, bytes, bytesPerSecond, cores, known } from "./format.ts";
import type { Model, Scope } from "./model.ts";
import { type Row, type Sorting, chosenRows, rowsOf } from "./rows.ts";

interface Column {
  readonly title: string;
  readonly by: keyof Row;
  readonly text: (row: Row, model: Model) => string;
}

const columns: readonly Column[] = [
  { title: "Pod", by: "name", text: ({ namespace, name }) => `${namespace}/${name}` },
  { title: "Node", by: "node", text: ({ node }) => node },
  { title: "Status", by: "status", text: ({ status }) => status },
  { title: "Ready", by: "ready", text: ({ ready, of }) => `${ready}/${of}` },
  { title: "Restarts", by: "restarts", text: ({ restarts }) => String(restarts) },
  { title: "CPU", by: "cpu", text: ({ cpu }) => known(cpu, cores) },
  { title: "Memory", by: "memory", text: ({ memory }) => known(memory, bytes) },
  { title: "Received", by: "rx", text: ({ rx }) => known(rx, bytesPerSecond) },
  { title: "Sent", by: "tx", text: ({ tx }) => known(tx, bytesPerSecond) },
  { title: "Disk", by: "disk", text: ({ disk }) => known(disk, bytes) },
  { title: "Age", by: "since", text: ({ since }, { now }) => (since > 0 ? age(now - since) : "–") },
];

/** Height of a row in the style sheet, pixels; and number of rows rendered above and below the visible ones. */
const rowHeight = 28;
const spare = 6;

/** Creates the table of pods. Only visible rows are in the document, so that thousands of pods cost no more than a screenful. */
export function createPodRows(into: HTMLElement, choose: (scope: Scope) => void) {
  const filter = make("input");
  Object.assign(filter, {
    type: "search",
    placeholder: "name, namespace, node or status",
    ariaLabel: "Filter pods",
  });
  const count = make("span", { class: "faint" });
  const head = make("div", { class: "row head" });
  const space = make("div", { class: "space" });
  const sight = make("div", { class: "sight" }, [head, space]);
  sight.tabIndex = 0;
  into.replaceChildren(make("div", { class: "bar-of-table" }, [make("h3", { text: "Pods" }), count, filter]), sight);

  let sorting: Sorting = { by: "cpu", down: true };
  let rows: readonly Row[] = [];
  let last: { readonly model: Model; readonly scope: Scope } | undefined;
  const pool: HTMLElement[] = [];
  const paint = () => {
    if (!last) return;
    const first = Math.max(0, Math.floor(sight.scrollTop / rowHeight) - spare);
    const shown = rows.slice(first, first + Math.ceil(sight.clientHeight / rowHeight) + 2 * spare);
    while (pool.length < shown.length) pool.push(space.appendChild(newRow(choose)));
    for (const [index, element] of pool.entries()) fill(element, shown[index], first + index, last);
  };
  const redraw = () => {
    if (!last) return;
    const { model, scope } = last;
    const all = rowsOf(model, scope);
    rows = chosenRows(all, filter.value, sorting);
    setText(count, rows.length === all.length ? String(all.length) : `${rows.length} of ${all.length}`);
    space.style.height = `${rows.length * rowHeight}px`;
    for (const [index, cell] of [...head.children].entries())
      cell.className = columns[index]?.by === sorting.by ? (sorting.down ? "by down" : "by up") : "";
    paint();
  };
  for (const { title, by } of columns) {
    const cell = head.appendChild(make("button", { text: title }));
    cell.addEventListener("click", () => {
      const text = by === "name" || by === "node" || by === "status";
      sorting = { by, down: sorting.by === by ? !sorting.down : !text };
      redraw();
    });
  }
  filter.addEventListener("input", redraw);
  sight.addEventListener("scroll", paint, { passive: true });
  new ResizeObserver(paint).observe(sight);
  return {
    draw(model: Model, scope: Scope) {
      last = { model, scope };
      redraw();
    },
  };
}

function newRow(choose: (scope: Scope) => void): HTMLElement {
  const row = make(
    "button",
    { class: "row" },
    columns.map(() => make("span")),
  );
  row.addEventListener("click", () => {
    const { node, pod } = row.dataset;
    if (node !== undefined && pod !== undefined) choose({ node, pod });
  });
  return row;
}

function fill(
  element: HTMLElement,
  row: Row | undefined,
  index: number,
  { model, scope }: { readonly model: Model; readonly scope: Scope },
): void {
  element.hidden = row === undefined;
  if (!row) return;
  element.style.transform = `translateY(${index * rowHeight}px)`;
  Object.assign(element.dataset, { node: row.node, pod: row.uid });
  element.className = `row${row.bad ? " bad" : ""}${row.uid === scope.pod ? " chosen" : ""}`;
  for (const [at, cell] of [...element.children].entries()) setText(cell, columns[at]?.text(row, model) ?? "");
}
