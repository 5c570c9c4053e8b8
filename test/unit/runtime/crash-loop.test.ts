import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import type { Pod } from "../../../src/objects.ts";
import { createCrashLoop } from "../../../src/runtime/crash-loop.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const c = aContainer("c");
const minutes = 60_000;

/** @param offsetMs how far the target's clock is ahead of ours. */
function rig(offsetMs = 0, maxMs = 5 * minutes) {
  const clock = fakeClock();
  const targetClock = { toOurs: (time: number) => time - offsetMs };
  const events = eventLines();
  const loop = createCrashLoop({ clock, targetClock, events, maxMs });
  /** The container exits now. @returns milliseconds until it may start. */
  const endsAndWaits = async (pod: Pod = aPod()): Promise<number> => {
    const endedAt = clock.now();
    const seen = observe(
      [aSandbox()],
      [aStatus(c, ContainerState.CONTAINER_EXITED, { finishedAt: BigInt(endedAt + offsetMs) * 1_000_000n })],
    );
    for (;;) {
      try {
        loop.check(pod, c, seen);
        return clock.now() - endedAt;
      } catch (error) {
        assert.ok(error instanceof StartError && error.retryAt !== undefined);
        await clock.advance(error.retryAt - clock.now());
      }
    }
  };
  return { clock, events, loop, endsAndWaits };
}

test("the first restart is immediate, then 10 s, 20 s, 40 s … five minutes after each exit", async () => {
  const { endsAndWaits } = rig();
  const waits = [];
  for (let restart = 0; restart < 8; restart++) waits.push(await endsAndWaits());
  assert.deepEqual(waits, [0, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
});

test("a low maximum applies from the first wait on; ten minutes of running still reset the back-off", async () => {
  const { clock, endsAndWaits } = rig(0, 4_000);
  assert.deepEqual([await endsAndWaits(), await endsAndWaits(), await endsAndWaits()], [0, 4_000, 4_000]);
  await clock.advance(9 * minutes);
  assert.equal(await endsAndWaits(), 4_000);
  await clock.advance(10 * minutes + 1);
  assert.equal(await endsAndWaits(), 0);
});

test("a wrong clock on the target does not change the wait", async () => {
  for (const offsetMs of [3_600_000, -3_600_000]) {
    const { endsAndWaits } = rig(offsetMs);
    const waits = [await endsAndWaits(), await endsAndWaits(), await endsAndWaits()];
    assert.deepEqual(waits, [0, 10_000, 20_000], `${offsetMs} ms`);
  }
});

test("the time since the exit counts towards the wait", async () => {
  const { clock, loop, endsAndWaits } = rig();
  await endsAndWaits();
  await endsAndWaits();
  const seen = observe(
    [aSandbox()],
    [aStatus(c, ContainerState.CONTAINER_EXITED, { finishedAt: BigInt(clock.now()) * 1_000_000n })],
  );
  await clock.advance(20_000);
  loop.check(aPod(), c, seen);
});

test("ten minutes of running reset the back-off", async () => {
  const { clock, endsAndWaits } = rig();
  for (let restart = 0; restart < 4; restart++) await endsAndWaits();
  await clock.advance(10 * minutes + 1);
  assert.deepEqual([await endsAndWaits(), await endsAndWaits()], [0, 10_000]);
});

test("a rejected restart is reported in the kubelet's words, in the status and by an event", async () => {
  const { clock, events, loop, endsAndWaits } = rig();
  for (let restart = 0; restart < 4; restart++) await endsAndWaits();
  const seen = observe(
    [aSandbox()],
    [aStatus(c, ContainerState.CONTAINER_EXITED, { finishedAt: BigInt(clock.now()) * 1_000_000n })],
  );
  assert.throws(() => loop.check(aPod(), c, seen), {
    reason: "CrashLoopBackOff",
    message: "back-off 1m20s restarting failed container=c pod=p_default(uid-1)",
    retryAt: clock.now() + 80_000,
  });
  assert.equal(events.lines.at(-1), "Warning BackOff Back-off restarting failed container c in pod p_default(uid-1)");
});

test("a container that never exited, or belongs to another pod of the same name, is not delayed", async () => {
  const { loop, endsAndWaits } = rig();
  for (let restart = 0; restart < 3; restart++) await endsAndWaits();
  loop.check(aPod(), c, observe([aSandbox()], [aStatus(c, ContainerState.CONTAINER_CREATED)]));
  assert.equal(await endsAndWaits(aPod({}, { uid: "uid-2" })), 0);
});
