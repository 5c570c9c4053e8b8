import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fuzz } from "../fuzz/fuzz.ts";
import { targets } from "../fuzz/targets.ts";

/** `make fuzz` draws another one each time. */
const seed = 38;

test("no decoder crashes, hangs or grows in ten seconds of mutated input", async (t) => {
  const keepIn = mkdtempSync(join(tmpdir(), "graftlet-fuzz-"));
  t.after(() => rmSync(keepIn, { recursive: true }));
  const { runs, failures } = await fuzz({ seed, seconds: 10, keepIn });
  assert.deepEqual(failures, []);
  assert.equal(runs.size, targets.length);
});

test("finds decoders that crash, hang or grow, and keeps the smallest input", async (t) => {
  const keepIn = mkdtempSync(join(tmpdir(), "graftlet-fuzz-"));
  t.after(() => rmSync(keepIn, { recursive: true }));
  const { failures } = await fuzz({ seed, seconds: 1, keepIn, from: "faulty-targets.ts", hangsAfterMs: 6_000 });
  const found = failures.map((text) => text.split("\n", 1)[0]?.replace(/ \(seed 38, input \S+\):/, ":"));
  assert.match(found[0] ?? "", /^type error: TypeError: Cannot read properties of undefined/);
  assert.equal(found[1], "hang: it has been decoding for 6000 ms");
  assert.match(found[2] ?? "", /^memory: Error: it took \d+ MiB$/);
  assert.match(found[3] ?? "", /^out of memory: .*memory/);
  assert.match(found[4] ?? "", /^uncaught: Error: nobody hears it/);
  assert.equal(found.length, 5);
  assert.equal(readdirSync(keepIn).length, 5);
  assert.ok(readFileSync(join(keepIn, `type-error-${seed}`)).length <= 9, "the sample has lost or changed a byte");
});
