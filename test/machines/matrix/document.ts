import { type Cell, nameOf, titleOf } from "./cells.ts";
import type { SuiteResult } from "./results.ts";

const heads = ["system", "runtime", "date", "versions", "tour", "further tests", "failed"];

/** The table of the results, a row for each cell that has been run, in the order of the cells. */
export function tableOf(cells: readonly Cell[], results: readonly SuiteResult[]): string {
  const rows = cells.flatMap((cell) => {
    const own = results.filter((result) => result.cell === nameOf(cell));
    return own.length > 0 ? [rowOf(cell, own)] : [];
  });
  const widths = heads.map((head, index) => Math.max(head.length, ...rows.map((row) => row[index]?.length ?? 0)));
  const lineOf = (row: readonly string[]): string =>
    `| ${row.map((column, index) => column.padEnd(widths[index] ?? 0)).join(" | ")} |`;
  return [lineOf(heads), lineOf(widths.map((width) => "-".repeat(width))), ...rows.map(lineOf)].join("\n");
}

function rowOf(cell: Cell, results: readonly SuiteResult[]): readonly string[] {
  const isTour = ({ suite }: SuiteResult): boolean => suite === "tour";
  const last = results.toSorted((a, b) => a.date.localeCompare(b.date)).at(-1);
  const failed = results.flatMap((result) =>
    result.failures.map(({ name }) => (isTour(result) ? name : `${result.suite}: ${name}`).replaceAll("|", "/")),
  );
  return [
    titleOf(cell),
    cell.runtime,
    last?.date ?? "",
    last?.versions ?? "",
    scoreOf(results.filter(isTour)),
    scoreOf(results.filter((result) => !isTour(result))),
    failed.join("; ") || "–",
  ];
}

/** `12 of 12`; a dash where nothing was run. */
function scoreOf(results: readonly SuiteResult[]): string {
  const passed = results.reduce((sum, result) => sum + result.passed, 0);
  const run = results.reduce((sum, result) => sum + result.passed + result.failures.length, 0);
  return run === 0 ? "–" : `${passed} of ${run}`;
}
