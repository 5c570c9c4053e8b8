import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Document, isMap, isNode, isScalar, type Pair, parseDocument, stringify, type YAMLMap } from "yaml";

interface Row {
  readonly value: string;
  readonly fallback: string;
  readonly meaning: string;
}

const [begin, end] = ["<!-- values.yaml, by make chart-docs -->", "<!-- end -->"];
/** A default longer than this is left to values.yaml, characters. */
const longest = 60;

/** The values of a chart with their defaults, each with the comment above it that begins with `# -- `. A group of values that has such a
 *  comment itself, or is written in braces, is one value. Pure. @param text of values.yaml */
export function valuesIn(text: string): Row[] {
  const document = parseDocument(text);
  return isMap(document.contents) ? rowsOf(document.contents, "", headOf(document)) : [];
}

/** The comment above the first value belongs to the document. */
function headOf({ commentBefore }: Document): string {
  return commentBefore ?? "";
}

function rowsOf(map: YAMLMap, path: string, head: string): Row[] {
  return map.items.flatMap((pair, index) => {
    const value = `${path}${keyOf(pair)}`;
    const above = (isNode(pair.key) && pair.key.commentBefore) || (index === 0 ? head : "");
    const meaning = meaningOf(above);
    const group = isMap(pair.value) && pair.value.items.length > 0 && pair.value.flow !== true ? pair.value : undefined;
    if (group && meaning === "") return rowsOf(group, `${value}.`, group.commentBefore ?? "");
    return [{ value, fallback: fallbackOf(pair), meaning }];
  });
}

function keyOf({ key }: Pair): string {
  return isScalar(key) ? String(key.value) : "";
}

/** What a comment says from its last line that begins with `-- `, as one line; empty without such a line. */
function meaningOf(comment: string): string {
  const lines = comment.split("\n").map((line) => line.trim());
  const from = lines.findLastIndex((line) => line.startsWith("-- "));
  return from < 0 ? "" : lines.slice(from).join(" ").slice(3).trim();
}

function fallbackOf({ value }: Pair): string {
  const plain: unknown = isNode(value) ? value.toJSON() : value;
  const text =
    typeof plain === "string" ? plain || '""' : stringify(plain, { collectionStyle: "flow", lineWidth: 0 }).trim();
  return text.length > longest || text.includes("\n") ? "see values.yaml" : `\`${text}\``;
}

/** The table of these values in Markdown, its columns padded. Pure. */
export function tableOf(rows: readonly Row[]): string {
  const cells = [
    ["value", "default", "meaning"],
    ...rows.map(({ value, fallback, meaning }) => [`\`${value}\``, fallback, meaning.replaceAll("|", "\\|")]),
  ];
  const widths = [0, 1, 2].map((column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  const [head = [], ...body] = cells;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...body.map(line)].join("\n");
}

/** The chart's README with the table of what values.yaml says; all else stays. Pure. @throws when its place is not marked. */
export function withValues(readme: string, values: string): string {
  const [from, to] = [readme.indexOf(begin), readme.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the chart's README has no ${begin} … ${end}`);
  return `${readme.slice(0, from)}${begin}\n\n${tableOf(valuesIn(values))}\n\n${readme.slice(to)}`;
}

if (import.meta.main) {
  const chart = join(import.meta.dirname, "..", "charts", "graftlet");
  const readme = join(chart, "README.md");
  writeFileSync(readme, withValues(readFileSync(readme, "utf8"), readFileSync(join(chart, "values.yaml"), "utf8")));
}
