import assert from "node:assert/strict";
import { test } from "node:test";
import { withPart } from "../../bench/document.ts";
import { createLedger } from "../../bench/ledger.ts";
import { atLeastTimes, atMost, atMostBeyond, atMostTimes } from "../../bench/reach.ts";
import { type Figure, reportOf, textOf } from "../../bench/report.ts";
import { median, percentile, shortNumber } from "../../bench/statistics.ts";

test("interpolates percentiles between adjacent values", () => {
  const values = Array.from({ length: 101 }, (_, index) => 100 - index);
  assert.deepEqual([percentile(values, 0), percentile(values, 50), percentile(values, 99)], [0, 50, 99]);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(percentile([10, 20], 99), 19.9);
  assert.equal(percentile([7], 99), 7);
  assert.throws(() => median([]), /nothing was measured/);
});

test("formats numbers with significant digits", () => {
  assert.deepEqual([1234.5, 123.4, 12.34, 1.234, 0.1234, -12.34, 0].map(shortNumber), [
    "1235",
    "123",
    "12.3",
    "1.23",
    "0.12",
    "-12.3",
    "0.00",
  ]);
});

const start: Figure = {
  id: "start",
  title: "create → Running",
  unit: "ms",
  many: true,
  reach: [atMostTimes(0.5, "graftlet", "kubelet")],
};

test("shows each agent's median and 99th percentile, and the result overall and per round", () => {
  const ledger = createLedger();
  ledger.note("start", "kubelet", 1, 900, 1000, 1100);
  ledger.note("start", "kubelet", 2, 900, 1000, 1100);
  ledger.note("start", "graftlet", 1, 350, 400, 450);
  ledger.note("start", "graftlet", 2, 250, 300, 320);
  const { rows, missed } = reportOf(ledger, [start], ["kubelet", "graftlet"]);
  assert.deepEqual(rows, [
    ["create → Running, ms", "1000 · 1100", "335 · 448", "0.34 × (0.40, 0.30)", "≤ 0.50 × kubelet", "yes"],
  ]);
  assert.deepEqual(missed, []);
});

test("lists a missed figure, with one row for each of its two goals", () => {
  const ledger = createLedger();
  ledger.note("burst", "kubelet", 1, 10);
  ledger.note("burst", "graftlet", 1, 9);
  ledger.note("burst", "bare", 1, 6);
  const burst: Figure = {
    ...start,
    id: "burst",
    title: "burst",
    unit: "s",
    many: false,
    reach: [atMostTimes(0.8, "graftlet", "kubelet"), atMostTimes(1.6, "graftlet", "bare")],
  };
  const report = reportOf(ledger, [start, burst], ["kubelet", "graftlet", "bare"]);
  assert.deepEqual(report.rows, [
    ["burst, s", "10.0", "9.00", "6.00", "0.90 ×", "≤ 0.80 × kubelet", "no"],
    ["", "", "", "", "1.50 ×", "≤ 1.60 × bare", "yes"],
  ]);
  assert.deepEqual(report.missed, ["burst: 0.90 ×, to reach ≤ 0.80 × kubelet"]);
  assert.match(textOf(report), /Not reached:\n\n- burst: 0\.90 ×, to reach ≤ 0\.80 × kubelet\n$/);
});

test("counts a figure as missed if the agent to compare with was not measured", () => {
  const ledger = createLedger();
  ledger.note("start", "graftlet", 1, 1);
  const { rows, missed } = reportOf(ledger, [start], ["kubelet", "graftlet"]);
  assert.deepEqual(rows, [["create → Running, ms", "", "1.00 · 1.00", "", "≤ 0.50 × kubelet", "not measured"]]);
  assert.equal(missed.length, 1);
});

test("compares a figure in each of the supported ways", () => {
  const measured = (who: string) => ({ graftlet: 530, local: 500 })[who];
  const beyond = atMostBeyond({ text: "local", of: (of) => of("local") }, 20, "graftlet", "ms");
  assert.deepEqual([beyond.text, beyond.of(measured)], ["≤ 20.0 ms beyond local", 30]);
  assert.deepEqual([beyond.isReached(20), beyond.isReached(21)], [true, false]);
  assert.equal(
    beyond.of(() => undefined),
    undefined,
  );
  const rate = atLeastTimes(0.8, "graftlet", "local");
  assert.deepEqual([rate.text, rate.of(measured), rate.isReached(0.79)], ["≥ 0.80 × local", 1.06, false]);
  const plain = atMost(5, "graftlet", "MiB");
  assert.deepEqual([plain.text, plain.of(measured), plain.isReached(5)], ["≤ 5.00 MiB", 530, true]);
});

test("formats the table as Markdown, with columns as wide as their content", () => {
  const ledger = createLedger();
  ledger.note("start", "graftlet", 1, 1);
  assert.equal(
    textOf(reportOf(ledger, [{ ...start, reach: [] }], ["graftlet"])),
    [
      "| figure               | graftlet    | came to | to reach | reached |",
      "| -------------------- | ----------- | ------- | -------- | ------- |",
      "| create → Running, ms | 1.00 · 1.00 |         |          |         |",
      "",
      "All figures are reached.",
      "",
    ].join("\n"),
  );
});

test("replaces only the run's own section of the page", () => {
  const page = "# Speed\n\n<!-- bench cri -->\n\nold\n\n<!-- end of bench cri -->\n\nafter\n";
  assert.equal(
    withPart(page, "bench cri", "new\n"),
    "# Speed\n\n<!-- bench cri -->\n\nnew\n\n<!-- end of bench cri -->\n\nafter\n",
  );
  assert.throws(() => withPart(page, "bench docker", "new"), /no part between <!-- bench docker -->/);
});
