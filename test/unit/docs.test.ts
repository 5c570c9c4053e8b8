import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..", "..");
const pages = [
  "README.md",
  "CONTRIBUTING.md",
  "charts/graftlet/README.md",
  ...readdirSync(join(root, "docs")).map((name) => `docs/${name}`),
];
const textOf = (page: string) => readFileSync(join(root, page), "utf8");

/** The anchors that GitHub gives a page's headings. */
function anchorsOf(page: string): ReadonlySet<string> {
  const headings = [...textOf(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, "")
        .trim()
        .replaceAll(" ", "-"),
    ),
  );
}

test("links of the docs lead to pages that are there, and to headings in them", () => {
  const astray = pages.flatMap((page) =>
    [...textOf(page).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].flatMap(([, link = ""]) => {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : join(dirname(page), path);
      if (!existsSync(join(root, target))) return [`${page}: ${link} is not there`];
      return anchor === undefined || anchorsOf(target).has(anchor) ? [] : [`${page}: ${link} has no such heading`];
    }),
  );
  assert.deepEqual(astray, []);
});

test("each page installs a release into the namespace in which it has the Secret made", () => {
  for (const page of pages) {
    const blocks = [...textOf(page).matchAll(/^```console\n(.*?)^```$/gms)].map(([, block = ""]) => block);
    const commands = blocks.flatMap((block) => block.replaceAll("\\\n", " ").split("\n"));
    for (const command of commands.filter((line) => /create secret generic|helm install/.test(line)))
      assert.match(command, / (-n|--namespace) graftlet /, page);
  }
});

test("no line of Markdown is longer than 300 characters", () => {
  const skipped = new Set(["node_modules", "dist", ".git"]);
  const everywhere = globSync("**/*.md", { cwd: root, exclude: (name) => skipped.has(name) });
  assert.deepEqual(
    pages.filter((page) => !everywhere.includes(page)),
    [],
  );
  const long = everywhere.flatMap((page) =>
    textOf(page)
      .split("\n")
      .flatMap((line, index) => (line.length > 300 ? [`${page}:${index + 1}: ${line.length} characters`] : [])),
  );
  assert.deepEqual(long, []);
});
