import assert from "node:assert/strict";
import { test } from "node:test";
import { goDuration, parseDuration } from "../../../src/lib/go-duration.ts";
import { parseBool, parseInteger, quantitySign } from "../../../src/config/go-values.ts";

test("parses durations as Go does", () => {
  const cases: readonly [string, number | undefined][] = [
    ["1m30s", 90_000],
    ["0", 0],
    ["1.5h", 5_400_000],
    ["-2s", -2000],
    ["100ms", 100],
    ["5us", 0.005],
    [".5s", 500],
    ["5", undefined],
    ["", undefined],
    ["s", undefined],
    ["1 m", undefined],
    ["1d", undefined],
  ];
  for (const [text, ms] of cases) assert.equal(parseDuration(text), ms, text);
});

test("formats durations as Go does", () => {
  const cases: readonly [number, string][] = [
    [0, "0s"],
    [100, "100ms"],
    [1500, "1.5s"],
    [60_000, "1m0s"],
    [4 * 3_600_000, "4h0m0s"],
    [90_061_000, "25h1m1s"],
    [0.005, "5µs"],
    [-2000, "-2s"],
  ];
  for (const [ms, text] of cases) {
    assert.equal(goDuration(ms), text);
    assert.equal(parseDuration(text), ms, `${text} reads back`);
  }
});

test("parses booleans and integers as Go does", () => {
  assert.equal(parseBool("T"), true);
  assert.equal(parseBool("0"), false);
  assert.equal(parseBool("yes"), undefined);
  assert.equal(parseInteger("0x10"), 16);
  assert.equal(parseInteger("010"), 8);
  assert.equal(parseInteger("-7"), -7);
  assert.equal(parseInteger("1.0"), undefined);
  assert.equal(parseInteger(""), undefined);
});

test("returns the sign of a quantity, or undefined for an invalid one", () => {
  const cases: readonly [string, number | undefined][] = [
    ["500Mi", 1],
    ["200m", 1],
    ["1e3", 1],
    [".5", 1],
    ["0", 0],
    ["0.00Gi", 0],
    ["-1Gi", -1],
    ["1 Gi", undefined],
    ["10MB", undefined],
    ["", undefined],
  ];
  for (const [text, sign] of cases) assert.equal(quantitySign(text), sign, text);
});
