import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

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
    const { NODE_TEST_CONTEXT: _, ...own } = process.env;
    const env = { ...own, GRAFTLET_TEST_FIGURES: "1" };
    const command = [program, ...files];
    const { status, stdout } = spawnSync(process.execPath, command, { env, encoding: "utf8", cwd: folder });
    return { status, said: stdout };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const again = /^==> once more, by themselves: (.*)$/m;

test("runs a passing file once", () => {
  const { status, said } = runAll("passes", "passes");
  assert.equal(status, 0);
  assert.doesNotMatch(said, again);
});

test("prints start, end, duration and CPU time of every file, and the total CPU time", () => {
  const { said } = runAll("passes", "passes");
  assert.match(said, /^==> start, end, seconds and CPU seconds of each; \d+ CPU seconds in all$/m);
  const rows = [...said.matchAll(/^ *([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) {2}\d\.test\.mjs$/gm)];
  assert.equal(rows.length, 2);
  for (const [, start, end, seconds, cpuSeconds] of rows) {
    assert.ok(Math.abs(Number(end) - Number(start) - Number(seconds)) < 0.2);
    assert.ok(Number(cpuSeconds) >= 0);
  }
});

test("repeats a failed file once, on its own, and reports it", () => {
  const { status, said } = runAll("passes", "fails once");
  assert.equal(status, 0);
  assert.equal(again.exec(said)?.[1], "1.test.mjs");
  assert.match(said, /^==> failed once and passed the second time, look into it: 1\.test\.mjs$/m);
});

test("fails if a file fails twice or crashes", () => {
  for (const fate of ["fails", "breaks off"] as const) {
    const { status, said } = runAll("passes", fate);
    assert.equal(status, 1, fate);
    assert.equal(again.exec(said)?.[1], "1.test.mjs", fate);
    assert.doesNotMatch(said, /passed the second time/, fate);
    assert.match(said, /^==> reason: .* \(1\.test\.mjs\)$/m, fate);
  }
});

test("repeats no file if many have failed, and reports the reason for each", () => {
  const { status, said } = runAll("fails once", "fails once", "fails once", "fails once");
  assert.equal(status, 1);
  assert.doesNotMatch(said, again);
  const reasons = [0, 1, 2, 3].map((index) => `==> reason: works: no (${index}.test.mjs)`);
  assert.deepEqual(said.trimEnd().split("\n").slice(-6, -2).toSorted(), reasons);
});

test("ends its children when it is terminated", async () => {
  const folder = mkdtempSync(join(tmpdir(), "run-tests-test-"));
  try {
    const file = join(folder, "long.test.mjs");
    const mark = join(folder, "pid");
    const body = `import { test } from 'node:test'; import { renameSync, writeFileSync } from 'node:fs';
      writeFileSync('${mark}.new', String(process.pid)); renameSync('${mark}.new', '${mark}');
      test('lasts', () => new Promise((resolve) => setTimeout(resolve, 60_000)));`;
    writeFileSync(file, body);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const child = spawn(process.execPath, [program, file], { env, stdio: "ignore" });
    const over = once(child, "exit");
    while (!existsSync(mark)) await sleep(50);
    child.kill("SIGTERM");
    assert.deepEqual(await over, [1, null]);
    const pid = Number(readFileSync(mark, "utf8"));
    for (let tries = 0; existsSync(`/proc/${pid}`); tries += 1) {
      assert.ok(tries < 100, `process ${pid} lives on`);
      await sleep(50);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
