import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { slugOf } from "../../../tools/site/slug.ts";
import { commandsOf, pages, root, textOf } from "./pages.ts";

const withoutBlocks = (page: string) => textOf(page).replaceAll(/^\s*```.*?^\s*```$/gms, "");

/** The anchors that GitHub gives a page's headings: a second one of the same text ends with -1. */
function anchorsOf(page: string): ReadonlySet<string> {
  const counts = new Map<string, number>();
  const headings = [...withoutBlocks(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => heading);
  const anchors = headings.map((heading) => {
    const anchor = slugOf(heading);
    const before = counts.get(anchor) ?? 0;
    counts.set(anchor, before + 1);
    return before === 0 ? anchor : `${anchor}-${before}`;
  });
  return new Set(anchors);
}

/** Where a page's links and pictures lead, but to other places of the web. */
function linksOf(page: string): readonly string[] {
  const text = withoutBlocks(page);
  const inline = [...text.matchAll(/\]\((?!https?:|mailto:)([^)\s]+)\)/g)];
  const named = [...text.matchAll(/^\[[^\]]+\]: (?!https?:)(\S+)/gm)];
  const html = [...text.matchAll(/ (?:src|srcset|href)="(?!https?:)([^"]+)"/g)];
  return [...inline, ...named, ...html].map(([, link = ""]) => link);
}

test("links in the documents lead to existing files and headings", () => {
  const astray = pages.flatMap((page) =>
    linksOf(page).flatMap((link) => {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : join(dirname(page), path);
      if (!existsSync(join(root, target))) return [`${page}: ${link} is not there`];
      return anchor === undefined || anchorsOf(target).has(anchor) ? [] : [`${page}: ${link} has no such heading`];
    }),
  );
  assert.deepEqual(astray, []);
});

test("every page is reachable from the README through at most one other page", () => {
  const reached = new Set(["README.md"]);
  for (let round = 0; round < 2; round++)
    for (const page of [...reached].filter((path) => path.endsWith(".md")))
      for (const link of linksOf(page)) reached.add(join(dirname(page), link.split("#")[0] ?? ""));
  assert.deepEqual(
    pages.filter((page) => page.startsWith("docs/") && !reached.has(page)),
    [],
  );
});

test("each page installs a release into the namespace of the Secret that it creates", () => {
  for (const page of pages)
    for (const command of commandsOf(page).filter((line) => /create secret generic|helm install/.test(line)))
      assert.match(command, / (-n|--namespace) graftlet /, page);
});

test("no line of Markdown is longer than 300 characters", () => {
  const long = pages.flatMap((page) =>
    textOf(page)
      .split("\n")
      .flatMap((line, index) => (line.length > 300 ? [`${page}:${index + 1}: ${line.length} characters`] : [])),
  );
  assert.deepEqual(long, []);
});
