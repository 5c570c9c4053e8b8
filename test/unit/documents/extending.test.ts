import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const root = join(import.meta.dirname, "..", "..", "..");
const page = await readFile(join(root, "docs", "extending.md"), "utf8");

test("the example of a resource manager compiles", { timeout: 60_000 }, async (t) => {
  const [, example] = /```ts\n([\s\S]*?)```/.exec(page) ?? [];
  assert.ok(example);
  const folder = await mkdtemp(join(root, "src", "example-"));
  t.after(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "licences.ts"), example);
  await writeFile(
    join(folder, "tsconfig.json"),
    JSON.stringify({ extends: "../../tsconfig.json", include: ["licences.ts"] }),
  );
  const compiled = await promisify(execFile)("npx", ["--no-install", "tsc", "--noEmit", "-p", folder], {
    cwd: root,
  }).catch((error: { stdout: string }) => error);
  assert.equal(compiled.stdout, "");
});

test("the paths named in the page and the architecture document exist", async () => {
  const pages = page + (await readFile(join(root, "docs", "architecture.md"), "utf8"));
  const named = [...pages.matchAll(/`((?:src|providers|test|tools)\/[\w./-]*)`/g)].map(([, path = ""]) => path);
  assert.ok(named.length > 60);
  for (const path of new Set(named))
    await assert.doesNotReject(readFile(join(root, path)).catch(ignoreDirectory), path);
});

function ignoreDirectory(error: NodeJS.ErrnoException): void {
  if (error.code !== "EISDIR") throw error;
}
