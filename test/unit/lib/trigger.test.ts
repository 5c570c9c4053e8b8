import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { createTrigger } from "../../../src/lib/trigger.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("a wait ends when the trigger fires, also if it has fired before", async () => {
  const trigger = createTrigger();
  const { signal } = new AbortController();
  trigger.fire();
  await trigger.fired(signal);
  let isOver = false;
  const wait = trigger.fired(signal).then(() => void (isOver = true));
  await Promise.resolve();
  assert.equal(isOver, false, "it has fired once");
  trigger.fire();
  await wait;
});

test("what fires when the loop has ended is kept for the next one", async () => {
  const trigger = createTrigger();
  const ended = new AbortController();
  const wait = trigger.fired(ended.signal);
  ended.abort();
  await wait;
  trigger.fire();
  await trigger.fired(ended.signal);
  await trigger.fired(new AbortController().signal);
});

test("waits leave nothing behind at the signal, whether they ended or not", async () => {
  const trigger = createTrigger();
  const { signal } = new AbortController();
  for (let round = 0; round < 100; round += 1) {
    const wait = trigger.fired(signal);
    if (round % 2 === 0) continue;
    trigger.fire();
    await wait;
  }
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("what fires after a wait has reached its time limit is kept for the next one", async () => {
  const trigger = createTrigger();
  const clock = fakeClock();
  const { signal } = new AbortController();
  const wait = trigger.firedWithin(clock, 1_000, signal);
  await clock.advance(1_000);
  await wait;
  trigger.fire();
  await trigger.firedWithin(clock, undefined, signal);
});
