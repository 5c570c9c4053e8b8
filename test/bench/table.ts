/** A table as Markdown has it, its columns as wide as what is in them. @param rows cells, each row as long as the head. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(3, ...[title, ...rows.map((row) => row[column] ?? "")].map(width)),
  );
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - width(cell))).join(" | ")} |`;
  return [line(head), `| ${widths.map((count) => "-".repeat(count)).join(" | ")} |`, ...rows.map(line)].join("\n");
}

/** Characters that a text takes on a screen. */
function width(text: string): number {
  return text.length;
}
