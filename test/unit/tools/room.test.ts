import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createGauge, hasRoom } from "../../../tools/room.ts";

const [much, little] = [8 * 2 ** 30, 2 ** 30];
const files = (running: number, load = running) => ({ running, load });

test("always runs one test file per processor, and more while processors are idle and memory is left", () => {
  assert.ok(hasRoom(files(1), { idle: 0, memory: little }, 2));
  assert.ok(!hasRoom(files(2), { idle: 0.05, memory: much }, 2));
  assert.ok(!hasRoom(files(2), { idle: 0.5, memory: little }, 2));
  assert.ok(hasRoom(files(2), { idle: 0.5, memory: much }, 2));
  assert.ok(!hasRoom(files(2), { idle: 0.2, memory: much }, 2));
  assert.ok(hasRoom(files(4), { idle: 0.5, memory: much }, 2));
  assert.ok(!hasRoom(files(5), { idle: 1, memory: much }, 2));
});

test("runs twice as many test files that mostly wait while processors are idle and memory is left", () => {
  assert.ok(hasRoom(files(9, 4.5), { idle: 0.5, memory: much }, 2));
  assert.ok(!hasRoom(files(10, 5), { idle: 1, memory: much }, 2));
  assert.ok(!hasRoom(files(3, 1.5), { idle: 0.2, memory: much }, 2));
  assert.ok(!hasRoom(files(3, 1.5), { idle: 1, memory: little }, 2));
});

test("a test file that starts a machine waits for enough memory, unless it runs alone", () => {
  const machine = 2.5 * 2 ** 30;
  assert.ok(hasRoom(files(1), { idle: 0, memory: much }, 2, machine));
  assert.ok(!hasRoom(files(1), { idle: 1, memory: 2 * little }, 2, machine));
  assert.ok(!hasRoom(files(2), { idle: 1, memory: 3 * little }, 2, machine));
  assert.ok(hasRoom(files(0), { idle: 0, memory: little }, 2, machine));
});

test("measures idle processor time and available memory", async () => {
  const spare = createGauge();
  await sleep(100);
  const { idle, memory } = spare();
  assert.ok(idle >= 0 && idle <= 1, String(idle));
  assert.ok(memory > 0);
});
