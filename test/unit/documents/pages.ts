// The project's Markdown, as the tests of documents read it.
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const root = join(import.meta.dirname, "..", "..", "..");

const skipped = new Set(["node_modules", "dist", ".git"]);

/** Every Markdown file of the project, by its path from the project's folder. */
export const pages: readonly string[] = globSync("**/*.md", { cwd: root, exclude: (name) => skipped.has(name) }).sort();

/** A file's text. @param path from the project's folder. */
export function textOf(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** The commands of a page's `console` blocks, lines that a backslash continues joined, without the prompt and without what is printed. */
export function commandsOf(page: string): readonly string[] {
  const blocks = [...textOf(page).matchAll(/^\s*```console\n(.*?)^\s*```$/gms)].map(([, block = ""]) => block);
  return blocks.flatMap((block) =>
    block
      .replaceAll(/\\\n\s*/g, "")
      .split("\n")
      .flatMap((line) => /^\s*\$ (.*)$/.exec(line)?.slice(1) ?? []),
  );
}

/** The cells of the row of a table whose first cell contains a text, without markup. Empty if there is none. */
export function rowOf(page: string, text: string): readonly string[] {
  const row = textOf(page)
    .split("\n")
    .find((line) => line.startsWith("|") && line.split("|")[1]?.includes(text));
  return row?.split("|").slice(1, -1).map(plain) ?? [];
}

function plain(cell: string): string {
  return cell
    .replaceAll("**", "")
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .trim();
}
