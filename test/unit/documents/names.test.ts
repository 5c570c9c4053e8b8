import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { completionScript } from "../../../src/config/completion.ts";
import { isRecord } from "../../../src/lib/record.ts";
import { blocksOf, commandsOf, pages, textOf, yamlIsFor } from "./pages.ts";

/** The commands of a page's blocks, and what stands as code in its lines. */
const codeOf = (page: string) => [
  ...commandsOf(page),
  ...[...textOf(page).matchAll(/`([^`\n]+)`/g)].map(([, code = ""]) => code),
];

/** What a pattern's first group finds in the code of all pages, each with its page. @throws when it finds nothing. */
function named(pattern: RegExp): readonly { readonly page: string; readonly name: string }[] {
  const found = pages.flatMap((page) =>
    codeOf(page).flatMap((code) => [...code.matchAll(pattern)].map(([, name = ""]) => ({ page, name }))),
  );
  assert.ok(found.length > 10, `${pattern} finds hardly anything`);
  return found;
}

test("make targets in the documents exist", () => {
  const targets = new Set(
    [...textOf("Makefile").matchAll(/^([a-z][\w -]*):(?!=)/gm)].flatMap(([, names = ""]) => names.split(" ")),
  );
  assert.deepEqual(
    named(/^make ([a-z][\w-]*)/g).filter(({ name }) => !targets.has(name)),
    [],
  );
});

test("flags of graftlet in the documents exist", () => {
  const flags = new Set(completionScript("bash").match(/--[a-z][\w-]*/g));
  const commands = pages.flatMap((page) =>
    codeOf(page)
      .filter((code) => /^(dist\/)?graftlet(\.mjs)? /.test(code))
      .map((code) => ({ page, code: code.split(" -- ")[0] ?? "" })),
  );
  assert.ok(commands.length > 10);
  const astray = commands.flatMap(({ page, code }) =>
    [...code.matchAll(/(?<= )--[a-z][\w-]*/g)].filter(([flag]) => !flags.has(flag)).map(([flag]) => `${page}: ${flag}`),
  );
  assert.deepEqual(astray, []);
});

/** The values that the chart's README explains, `nodes[].ssh.host` and the like. */
const values = new Set(
  [...textOf("charts/graftlet/README.md").matchAll(/^\| `([^`]+)`/gm)].map(([, name = ""]) => name),
);

/** Whether the README explains parts of a value: it is a group. */
const isGroup = (name: string) =>
  [...values].some((value) => value.startsWith(`${name}.`) || value.startsWith(`${name}[].`));

/** Whether the chart has a value: one that its README explains, a part of one that is the user's to fill, or a group. */
function isValue(name: string): boolean {
  const known = name.replace(/^nodes\.(?:\\.|[^.\\])+(?=\.)/, "nodes[]").replaceAll(/\[\d*\]/g, "[]");
  const parts = known.split(/(?<!\\)\./);
  const starts = parts.map((_, index) => parts.slice(0, index + 1).join("."));
  return isGroup(known) || starts.some((start) => values.has(start) && !isGroup(start));
}

test("values that the documents set with helm --set exist in the chart", () => {
  const set = named(/(?<=--set(?:-string|-file|-json)?[= ])'?([\w[\].\\/-]+)=/g);
  // The nodes of docs/command-line.md are those of a GraftletConfiguration.
  const mentioned = named(/^(nodes\[\]\.[\w.[\]]+)/g).filter(({ page }) => page !== "docs/command-line.md");
  assert.deepEqual(
    [...set, ...mentioned].filter(({ name }) => !isValue(name)),
    [],
  );
});

test("values files in the documents contain only values that the chart defines", () => {
  const namesIn = (value: unknown, at: string): readonly string[] => {
    if (at !== "" && values.has(at) && !isGroup(at)) return [at];
    if (Array.isArray(value)) return value.flatMap((item) => namesIn(item, `${at}[]`));
    if (!isRecord(value)) return [at];
    // A node's name is a key.
    if (at === "nodes") return Object.values(value).flatMap((node) => namesIn(node, "nodes[]"));
    return Object.entries(value).flatMap(([key, inner]) => namesIn(inner, at === "" ? key : `${at}.${key}`));
  };
  const files = pages.flatMap((page) =>
    blocksOf(page)
      .filter((block) => block.language === "yaml" && yamlIsFor(block) === "values of the chart")
      .map(({ text }) => ({ page, text })),
  );
  assert.ok(files.length > 3);
  const astray = files.flatMap(({ page, text }) =>
    namesIn(parse(text), "")
      .filter((name) => !isValue(name))
      .map((name) => `${page}: ${name}`),
  );
  assert.deepEqual(astray, []);
});
