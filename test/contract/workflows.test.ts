import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../harness/processes.ts";
import { buildProgram } from "../harness/tools.ts";

const root = join(import.meta.dirname, "..", "..");

test("actionlint finds nothing in the workflows", { timeout: 300_000 }, async () => {
  const program = { name: "actionlint", module: "actionlint" };
  const actionlint = await buildProgram(program, (line) => console.error(line));
  const files = globSync(".github/workflows/*.yml", { cwd: root });
  assert.ok(files.length >= 2);
  const { code, stdout } = await run([actionlint, "-no-color", ...files], { cwd: root });
  assert.equal(`${code} ${stdout}`, "0 ");
});
