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

/** A fenced block of a page. */
export interface Block {
  /** What stands behind its fence: `console`, `yaml`, or nothing. */
  readonly language: string;
  /** Its lines, each with its end, without the indentation of the fence. */
  readonly text: string;
  /** The paragraph before it, which marks it. */
  readonly mark: string;
  /** Where it begins: the page and the line. */
  readonly place: string;
}

/** The fenced blocks of a page, in their order. */
export function blocksOf(page: string): readonly Block[] {
  const text = textOf(page);
  return [...text.matchAll(/^( *)```(\w*)\n(.*?)^ *```$/gms)].map(
    ({ index, 1: indent = "", 2: language = "", 3: inner = "" }) => {
      const before = text.slice(0, index);
      return {
        language,
        text: inner.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
        mark: before.trim().split("\n\n").at(-1) ?? "",
        place: `${page}:${before.split("\n").length}`,
      };
    },
  );
}

/** What an example in YAML is for: its comment in the first line, or its kind. Pure. */
export function yamlIsFor({ text }: Pick<Block, "text">): string {
  return (/^# (.*)$/.exec(text.split("\n")[0] ?? "") ?? /^kind: (\w+)$/m.exec(text))?.[1] ?? "";
}

/** The commands of a `console` block without the prompt, lines that a backslash or an open quote continues joined; what is printed
 *  is left out. Pure. */
export function commandsIn({ text }: Pick<Block, "text">): readonly string[] {
  const commands: string[] = [];
  for (const line of text.split("\n")) {
    const last = commands.at(-1);
    if (line.startsWith("$ ")) commands.push(line.slice(2));
    else if (last !== undefined && isOpen(last)) commands.splice(-1, 1, `${last.replace(/\\$/, "")} ${line.trim()}`);
  }
  return commands;
}

/** Whether a shell would read on. */
function isOpen(command: string): boolean {
  return command.endsWith("\\") || command.split("'").length % 2 === 0;
}

/** The commands of a page's `console` blocks. */
export function commandsOf(page: string): readonly string[] {
  return blocksOf(page)
    .filter(({ language }) => language === "console")
    .flatMap(commandsIn);
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
