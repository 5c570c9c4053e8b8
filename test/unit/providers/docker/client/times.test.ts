import assert from "node:assert/strict";
import { test } from "node:test";
import { nanoseconds, secondsToNanoseconds } from "../../../../../providers/docker/client/times.ts";

test("keeps every digit of a time", () => {
  const second = BigInt(Date.UTC(2026, 10, 21, 7, 53, 48)) * 1_000_000n;
  assert.equal(nanoseconds("2026-11-21T07:53:48.140429145Z"), second + 140_429_145n);
  assert.equal(nanoseconds("2026-11-21T07:53:48.14Z"), second + 140_000_000n);
  assert.equal(nanoseconds("2026-11-21T07:53:48Z"), second);
  assert.equal(nanoseconds("2026-11-21T09:53:48.000000001+02:00"), second + 1n);
});

test("Go's zero time and invalid times are 0", () => {
  assert.equal(nanoseconds("0001-01-01T00:00:00Z"), 0n);
  assert.equal(nanoseconds(undefined), 0n);
  assert.equal(nanoseconds(""), 0n);
  assert.equal(nanoseconds("yesterday"), 0n);
});

test("parses whole seconds", () => assert.equal(secondsToNanoseconds(1_795_247_628), 1_795_247_628_000_000_000n));
