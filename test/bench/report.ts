import { type Ledger, medians } from "./ledger.ts";
import type { Reach } from "./reach.ts";
import { percentile, shortNumber } from "./statistics.ts";
import { markdownTable } from "./table.ts";

/** Something that is measured. */
export interface Figure {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
  /** Many values a round, of which the table shows the middle and the 99th percentile; else one a round. */
  readonly many: boolean;
  readonly reach: readonly Reach[];
}

/** What a run has come to. */
export interface Report {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Figures that fell short of what they should reach, a line each. */
  readonly missed: readonly string[];
}

/** A row for each figure that was measured, one more for each further reach of it. @param who the columns. */
export function reportOf(ledger: Ledger, figures: readonly Figure[], who: readonly string[]): Report {
  const rows: string[][] = [];
  const missed: string[] = [];
  for (const figure of figures) {
    if (ledger.rounds(figure.id).length === 0) continue;
    const name = figure.unit === "" ? figure.title : `${figure.title}, ${figure.unit}`;
    const cells = [name, ...who.map((one) => cellOf(ledger, figure, one))];
    if (figure.reach.length === 0) rows.push([...cells, "", "", ""]);
    for (const [index, reach] of figure.reach.entries()) {
      const { shown, verdict } = judge(ledger, figure, reach);
      rows.push([...(index === 0 ? cells : cells.map(() => "")), shown, reach.text, verdict]);
      if (verdict !== "yes") missed.push(`${figure.title}: ${shown || "not measured"}, to reach ${reach.text}`);
    }
  }
  return { head: ["figure", ...who, "came to", "to reach", "reached"], rows, missed };
}

/** The report as text. */
export function textOf({ head, rows, missed }: Report): string {
  const verdict = missed.length === 0 ? "All figures are reached." : `Not reached:\n\n${list(missed)}`;
  return `${markdownTable(head, rows)}\n\n${verdict}\n`;
}

function list(lines: readonly string[]): string {
  return lines.map((line) => `- ${line}`).join("\n");
}

/** The middle and the 99th percentile, or the middle alone. */
function cellOf(ledger: Ledger, { id, many }: Figure, who: string): string {
  const values = ledger.values(id, who);
  if (values.length === 0) return "";
  return many
    ? [50, 99].map((percent) => shortNumber(percentile(values, percent))).join(" · ")
    : shortNumber(percentile(values, 50));
}

/** What came of it over all rounds, and in brackets in each of them. */
function judge(ledger: Ledger, { id }: Figure, reach: Reach): { shown: string; verdict: string } {
  const whole = reach.of(medians(ledger, id));
  if (whole === undefined) return { shown: "", verdict: "not measured" };
  const each = ledger.rounds(id).map((round) => reach.of(medians(ledger, id, round)));
  const known = each.filter((value) => value !== undefined).map(shortNumber);
  const rounds = known.length > 1 ? ` (${known.join(", ")})` : "";
  return {
    shown: `${shortNumber(whole)} ${reach.unit}`.trimEnd() + rounds,
    verdict: reach.isReached(whole) ? "yes" : "no",
  };
}
