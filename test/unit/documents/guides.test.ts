import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pages, root, textOf } from "./pages.ts";

const guides = pages.filter((page) => page.startsWith("docs/guides/"));

/** The paragraph before each block of commands. */
function marksOf(page: string): readonly string[] {
  const [head = "", ...blocks] = textOf(page).split(/^```console$/m);
  return [head, ...blocks.slice(0, -1)].map((before) => before.trim().split("\n\n").at(-1) ?? "");
}

test("each block of commands in a guide says which test runs it, or that none does", () => {
  assert.ok(guides.length > 5);
  for (const page of guides)
    for (const mark of marksOf(page)) {
      assert.match(mark, /^_(Run by test\/|Not run )[^_]*_$/, page);
      for (const [path] of mark.matchAll(/test\/[\w/-]+\.test\.ts/g))
        assert.ok(existsSync(join(root, path)), `${page}: ${path}`);
    }
});
