import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const program = join(import.meta.dirname, "../../../tools/run-tests.ts");

/** What a test file does each time that it is run. */
type Fate = "passes" | "fails" | "fails once" | "breaks off";

const bodies: Readonly<Record<Fate, string>> = {
  passes: "",
  fails: "throw new Error('no')",
  "fails once": "if (!existsSync(mark)) { writeFileSync(mark, ''); throw new Error('no'); }",
  "breaks off": "process.exit(7)",
};

/** Runs test files of these fates. */
function runAll(...fates: readonly Fate[]): { readonly status: number | null; readonly said: string } {
  const folder = mkdtempSync(join(tmpdir(), "run-tests-test-"));
  try {
    const files = fates.map((fate, index) => {
      const file = join(folder, `${index}.test.mjs`);
      const imports = "import { test } from 'node:test'; import { existsSync, writeFileSync } from 'node:fs';";
      const mark = `const mark = ${JSON.stringify(`${file}.mark`)};`;
      writeFileSync(file, `${imports} ${mark} test('works', () => { ${bodies[fate]} });`);
      return file;
    });
    // Inside a test the runner takes itself for a test's.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const command = [program, "1", "--test-concurrency=2", ...files];
    const { status, stdout } = spawnSync(process.execPath, command, { env, encoding: "utf8", cwd: folder });
    return { status, said: stdout };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const again = /^==> once more, by themselves: (.*)$/m;

test("what passes is run once", () => {
  const { status, said } = runAll("passes", "passes");
  assert.equal(status, 0);
  assert.doesNotMatch(said, again);
});

test("a file that fails once is run again alone, and named", () => {
  const { status, said } = runAll("passes", "fails once");
  assert.equal(status, 0);
  assert.equal(again.exec(said)?.[1], "1.test.mjs");
  assert.match(said, /^==> failed once and passed the second time, look into it: 1\.test\.mjs$/m);
});

test("a file that fails twice, or breaks off, fails the run", () => {
  for (const fate of ["fails", "breaks off"] as const) {
    const { status, said } = runAll("passes", fate);
    assert.equal(status, 1, fate);
    assert.equal(again.exec(said)?.[1], "1.test.mjs", fate);
    assert.doesNotMatch(said, /passed the second time/, fate);
  }
});

test("so many that fail do not by chance", () => {
  const { status, said } = runAll("fails once", "fails once", "fails once", "fails once");
  assert.equal(status, 1);
  assert.doesNotMatch(said, again);
});
