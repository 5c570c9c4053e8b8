import { type Cell, nameOf, titleOf } from "./cells.ts";
import type { SuiteResult } from "./results.ts";

const heads = ["system", "runtime", "date", "versions", "tour", "further tests"];

/** The results as the page shows them: a table, and each failure by name. */
export function reportOf(cells: readonly Cell[], results: readonly SuiteResult[]): string {
  const failed = cells.flatMap((cell) =>
    results
      .filter((result) => result.cell === nameOf(cell))
      .flatMap(({ suite, failures }) =>
        failures.map(
          ({ name }) => `- ${titleOf(cell)}, ${cell.runtime}: ${suite === "tour" ? "" : `${suite}: `}${name}`,
        ),
      ),
  );
  return [tableOf(cells, results), "", ...(failed.length > 0 ? ["Failed:", "", ...failed] : ["Nothing failed."])].join(
    "\n",
  );
}

/** The table of the results, a row for each cell that has been run, in the order of the cells. */
function tableOf(cells: readonly Cell[], results: readonly SuiteResult[]): string {
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
  return [
    titleOf(cell),
    cell.runtime,
    last?.date ?? "",
    last?.versions ?? "",
    scoreOf(results.filter(isTour)),
    scoreOf(results.filter((result) => !isTour(result))),
  ];
}

/** `12 of 12`; a dash where nothing was run. */
function scoreOf(results: readonly SuiteResult[]): string {
  const passed = results.reduce((sum, result) => sum + result.passed, 0);
  const run = results.reduce((sum, result) => sum + result.passed + result.failures.length, 0);
  return run === 0 ? "–" : `${passed} of ${run}`;
}
