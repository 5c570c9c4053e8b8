import assert from "node:assert/strict";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { test } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { manifestObject } from "../../../src/sources/manifest.ts";
import { openManifestReader } from "../../../src/sources/manifest-reader.ts";

const { signal } = new AbortController();
const manifestOf = (text: string) => ({ text, origin: { nodeName: "n", of: { file: "/m/a.yaml" } }, lists: false });
const pod = (name: string, annotation = "") =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}, annotations: {a: "${annotation}"}}\nspec: {containers: [{name: c, image: i}]}\n`;

/** Longest period in which nothing else could run during the work, as a fraction of its time. */
async function longestHoldUp(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  const delays = monitorEventLoopDelay({ resolution: 10 });
  delays.enable();
  await work();
  delays.disable();
  return delays.max / 1e6 / (performance.now() - began);
}

test("parses large manifests without blocking, and reports errors as usual", async () => {
  await using reader = openManifestReader(systemClock());
  const slow = `a:\n${"- x\n".repeat(20_000)}`;
  const part = await longestHoldUp(() =>
    assert.rejects(reader.read(manifestOf(slow), signal), {
      code: "invalid_argument",
      message: /^its apiVersion is missing/,
    }),
  );
  assert.ok(part < 0.5, `${(part * 100).toFixed(0)} % of the time`);
  const [found] = await reader.read(manifestOf(pod("large", "x".repeat(50_000))), signal);
  assert.equal(found?.pod.metadata.name, "large-n");
  assert.equal(found?.pod.metadata.annotations?.["a"]?.length, 50_000);
});

test("moves many small manifests to a thread after the first few", async () => {
  await using reader = openManifestReader(systemClock());
  const part = await longestHoldUp(async () => {
    for (let index = 0; index < 100; index += 1)
      assert.equal((await reader.read(manifestOf(pod(`p${index}`, "x ".repeat(1_000))), signal)).length, 1);
  });
  assert.ok(part < 0.5, `${(part * 100).toFixed(0)} % of the time`);
});

test("refuses manifests that exceed memory or time limits, and continues with the next", async () => {
  for (const [bounds, why] of [
    [{ MiB: 20, ms: 120_000 }, /^parsing it takes more than 20 MiB of memory: make it smaller, or write it as JSON$/],
    [{ MiB: 512, ms: 1 }, /^parsing it takes more than 1 ms: make it smaller, or write it as JSON$/],
  ] as const) {
    await using reader = openManifestReader(systemClock(), bounds);
    const large = `a: [${"1,".repeat(30_000)}1]`;
    await assert.rejects(reader.read(manifestOf(large), signal), { code: "invalid_argument", message: why });
    assert.equal((await reader.read(manifestOf(pod("next")), signal)).length, 1);
  }
});

test("ends the thread without waiting for it", async () => {
  await using reader = openManifestReader(systemClock());
  const stop = new AbortController();
  const reading = reader.read(manifestOf(`a: [${"1,".repeat(100_000)}1]`), stop.signal);
  stop.abort(new Error("stopped"));
  await assert.rejects(reading, /stopped|aborted/);
});

test("refuses deeply nested or oversized manifests in a sentence", () => {
  const deep = /^its values are nested more than 100 levels deep, which no pod needs$/;
  const list = `[${Array<string>(900).fill("xxxxxxxxxx").join()}]`;
  for (const [text, message] of [
    [`${'{"a":'.repeat(150_000)}1${"}".repeat(150_000)}`, deep],
    [`${'{"a":'.repeat(101)}1${"}".repeat(101)}`, deep],
    ["[".repeat(3_000), deep],
    ["- ".repeat(3_000), deep],
    [
      `a: &a ${list}\nb: [${Array<string>(99).fill("*a").join()}]\nc: &c ${"x".repeat(60_000)}\nd: [${Array<string>(90).fill("*c").join()}]`,
      /^it is too large: /,
    ],
  ] as const)
    assert.throws(() => manifestObject(text), { code: "invalid_argument", message });
  assert.ok(manifestObject(`${'{"a":'.repeat(100)}1${"}".repeat(100)}`));
});
