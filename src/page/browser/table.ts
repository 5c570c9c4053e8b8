import { make, setText } from "./dom.ts";
import type { Model, Scope } from "./model.ts";
import { type Sorting, chosenRows } from "./rows.ts";

export interface Column<R> {
  readonly title: string;
  readonly by: keyof R & string;
  readonly text: (row: R, model: Model) => string;
  /** True for texts that may be long: they are shown in full when the pointer is over them. */
  readonly isLong?: boolean;
}

/** What a table needs of a row. */
export interface TableRow {
  readonly name: string;
  readonly bad: boolean;
}

export interface TableOptions<R extends TableRow> {
  readonly title: string;
  /** Placeholder and label of the field that filters rows. */
  readonly filter: { readonly placeholder: string; readonly label: string };
  readonly columns: readonly Column<R>[];
  /** Text of a row in which the words of the filter are searched. */
  readonly searched: (row: R) => string;
  readonly sorting: Sorting<R>;
  /** True for the row of what is selected. */
  readonly isChosen?: (row: R, scope: Scope) => boolean;
  readonly choose?: (row: R) => void;
}

/** Height of a row in the style sheet, pixels; and number of rows rendered above and below the visible ones. */
const rowHeight = 28;
const spare = 6;

/** What was drawn last. */
interface Drawn<R> {
  readonly model: Model;
  readonly scope: Scope;
  readonly all: readonly R[];
}

/** Creates a table that can be filtered and sorted. Only visible rows are in the document, so that thousands of rows cost no more than a
 *  screenful. */
export function createTable<R extends TableRow>(into: HTMLElement, options: TableOptions<R>) {
  const { columns, choose } = options;
  const { bar, filter, count } = createBar(options);
  const head = make("div", { class: "row head" });
  const space = make("div", { class: "space" });
  const sight = make("div", { class: "sight" }, [head, space]);
  sight.tabIndex = 0;
  into.replaceChildren(bar, sight);

  let { sorting } = options;
  let rows: readonly R[] = [];
  let last: Drawn<R> | undefined;
  /** Elements of visible rows, and the rows that they show. */
  const pool: { readonly element: HTMLElement; row: R | undefined }[] = [];
  const newRow = () => {
    const cells = columns.map(() => make("span"));
    const shown = {
      element: make(choose ? "button" : "div", { class: "row" }, cells),
      row: undefined as R | undefined,
    };
    shown.element.addEventListener("click", () => shown.row && choose?.(shown.row));
    space.append(shown.element);
    return shown;
  };
  const paint = () => {
    if (!last) return;
    const first = Math.max(0, Math.floor(sight.scrollTop / rowHeight) - spare);
    const visible = rows.slice(first, first + Math.ceil(sight.clientHeight / rowHeight) + 2 * spare);
    while (pool.length < visible.length) pool.push(newRow());
    for (const [index, shown] of pool.entries()) {
      shown.row = visible[index];
      fill(shown, first + index, last, options);
    }
  };
  const redraw = () => {
    if (!last) return;
    const { all } = last;
    rows = chosenRows(all, options.searched, filter.value, sorting);
    setText(count, rows.length === all.length ? String(all.length) : `${rows.length} of ${all.length}`);
    space.style.height = `${rows.length * rowHeight}px`;
    for (const [index, cell] of [...head.children].entries())
      cell.className = columns[index]?.by === sorting.by ? (sorting.down ? "by down" : "by up") : "";
    paint();
  };
  for (const { title, by } of columns) {
    const cell = head.appendChild(make("button", { text: title }));
    cell.addEventListener("click", () => {
      const isText = typeof rows[0]?.[by] === "string";
      sorting = { by, down: sorting.by === by ? !sorting.down : !isText };
      redraw();
    });
  }
  filter.addEventListener("input", redraw);
  sight.addEventListener("scroll", paint, { passive: true });
  new ResizeObserver(paint).observe(sight);
  return {
    draw(model: Model, scope: Scope, all: readonly R[]) {
      last = { model, scope, all };
      redraw();
    },
  };
}

function createBar<R extends TableRow>({ title, filter: { placeholder, label } }: TableOptions<R>) {
  const filter = make("input");
  Object.assign(filter, { type: "search", placeholder, ariaLabel: label });
  const count = make("span", { class: "faint" });
  return { filter, count, bar: make("div", { class: "bar-of-table" }, [make("h3", { text: title }), count, filter]) };
}

function fill<R extends TableRow>(
  { element, row }: { readonly element: HTMLElement; readonly row: R | undefined },
  index: number,
  { model, scope }: Drawn<R>,
  { columns, isChosen }: TableOptions<R>,
): void {
  element.hidden = row === undefined;
  if (!row) return;
  element.style.transform = `translateY(${index * rowHeight}px)`;
  element.className = `row${row.bad ? " bad" : ""}${isChosen?.(row, scope) ? " chosen" : ""}`;
  for (const [at, { text, isLong }] of columns.entries()) {
    const cell = element.children[at];
    if (!(cell instanceof HTMLElement)) continue;
    setText(cell, text(row, model));
    if (isLong) cell.title = cell.textContent;
  }
}
