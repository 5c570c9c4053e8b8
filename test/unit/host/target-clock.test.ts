import assert from "node:assert/strict";
import { test } from "node:test";
import { createTargetClock } from "../../../src/host/target-clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeLink } from "../../fakes/link.ts";
import { silent } from "../api/fake-client.ts";

const hour = 3_600_000;

/** A target whose clock is `offset` ahead of ours; undefined for one that does not answer. */
function start(offset: number | undefined) {
  const clock = fakeClock();
  const link = fakeLink();
  const state = { offset, reads: 0 };
  const offsetMs = async () => {
    state.reads += 1;
    if (state.offset === undefined) throw new CodedError("unavailable", "gone");
    return state.offset;
  };
  const target = createTargetClock({
    host: { clock: { offsetMs, bootId: async () => "" } },
    link,
    clock,
    log: silent,
  });
  const stop = new AbortController();
  const running = target.run(stop.signal);
  return {
    clock,
    link,
    state,
    target,
    ready: () => target.ready?.(stop.signal),
    ahead: () => target.now() - clock.now(),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      assert.equal(link.listeners, 0);
    },
  };
}

test("converts times for a target clock that is ahead or behind", async () => {
  for (const offset of [hour, -hour, 0]) {
    await using t = start(offset);
    await t.ready();
    assert.equal(t.ahead(), offset);
    assert.equal(t.target.toOurs(t.clock.now() + offset), t.clock.now());
  }
});

test("detects a clock change within a minute", async () => {
  await using t = start(0);
  await t.ready();
  t.state.offset = hour;
  await t.clock.advance(59_000);
  assert.equal(t.ahead(), 0);
  await t.clock.advance(1_000);
  assert.equal(t.ahead(), hour);
});

test("does not query an unreachable target, but queries it as soon as it is reachable again", async () => {
  await using t = start(5);
  await t.ready();
  t.link.cut();
  await t.clock.advance(600_000);
  assert.deepEqual([t.state.reads, t.ahead()], [1, 5]);
  t.state.offset = hour;
  t.link.mend();
  await t.clock.advance(0);
  assert.equal(t.ahead(), hour);
});

test("a target that does not answer blocks nothing, and the last offset stays in use", async () => {
  await using t = start(undefined);
  await t.ready();
  assert.equal(t.ahead(), 0);
  t.state.offset = hour;
  await t.clock.advance(60_000);
  t.state.offset = undefined;
  await t.clock.advance(60_000);
  assert.equal(t.ahead(), hour);
});
