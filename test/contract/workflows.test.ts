import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../harness/processes.ts";
import { buildProgram } from "../harness/tools.ts";

const root = join(import.meta.dirname, "..", "..");
const files = globSync(".github/workflows/*.yml", { cwd: root });

test("actionlint finds nothing in the workflows", { timeout: 300_000 }, async () => {
  const program = { name: "actionlint", module: "actionlint" };
  const actionlint = await buildProgram(program, (line) => console.error(line));
  assert.ok(files.length >= 2);
  const { code, stdout } = await run([actionlint, "-no-color", ...files], { cwd: root });
  assert.equal(`${code} ${stdout}`, "0 ");
});

test("workflows refer to each action by a commit, with its release in a comment, and by the same one everywhere", () => {
  const commits = new Map<string, string>();
  for (const file of files)
    for (const [, used = ""] of readFileSync(join(root, file), "utf8").matchAll(/uses: (.*)$/gm)) {
      const [, action = "", commit = ""] = /^([\w-]+\/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$/.exec(used) ?? [];
      assert.ok(action, `${file}: ${used}`);
      assert.equal(commits.get(action) ?? commit, commit, `${file}: ${used}`);
      commits.set(action, commit);
    }
  assert.ok(commits.has("actions/checkout"));
});
