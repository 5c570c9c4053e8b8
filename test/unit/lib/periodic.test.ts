import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { pause } from "../../../src/lib/pause.ts";
import { type PeriodicOptions, runPeriodically } from "../../../src/lib/periodic.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { fakeTargetGate } from "../../fakes/target-gate.ts";

type Options = Partial<PeriodicOptions> & { readonly clock?: FakeClock };

function patrolling(options: Options, round: (signal: AbortSignal, at: number) => Promise<void> | void) {
  const clock = options.clock ?? fakeClock();
  const rounds: number[] = [];
  const lines: string[] = [];
  const log = createLogger(0, { write: (line) => void lines.push((JSON.parse(line) as { msg: string }).msg) });
  const service = runPeriodically({ name: "watch", intervalMs: 1000, ...options, clock, log }, (signal) => {
    rounds.push(clock.monotonic());
    return round(signal, clock.monotonic());
  });
  const stop = new AbortController();
  const running = service.run(stop.signal);
  return {
    clock,
    rounds,
    lines,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      assert.equal(clock.pending, 0, "a timer is left");
    },
  };
}

test("starts at once or after the first delay, and repeats after each interval", async () => {
  await using atOnce = patrolling({}, () => {});
  await atOnce.clock.advance(2500);
  assert.deepEqual(atOnce.rounds, [0, 1000, 2000]);
  await using later = patrolling({ initialDelayMs: 300 }, () => {});
  await later.clock.advance(2500);
  assert.deepEqual(later.rounds, [300, 1300, 2300]);
});

test("an interval may depend on how long the run took", async () => {
  const clock = fakeClock();
  await using t = patrolling({ clock, intervalMs: (tookMs) => 10 * tookMs }, () => clock.sleep(100));
  await clock.advance(2500);
  assert.deepEqual(t.rounds, [0, 1100, 2200]);
});

test("logs a failed run and runs again after the interval", async () => {
  await using t = patrolling({}, (_, at) => (at === 0 ? Promise.reject(new Error("full")) : undefined));
  await t.clock.advance(1000);
  assert.deepEqual(t.rounds, [0, 1000]);
  assert.deepEqual(t.lines, ["watch failed; retrying"]);
});

test("does not run while the target is unreachable; a run that loses its target is aborted without a log line", async () => {
  const target = fakeTargetGate();
  const cut = async (signal: AbortSignal) => {
    await onAbort(signal);
    throw new Error("cut off");
  };
  await using t = patrolling({ waitForTarget: target.present }, (signal, at) => (at === 0 ? cut(signal) : undefined));
  await t.clock.advance(0);
  target.lose();
  await t.clock.advance(5000);
  assert.deepEqual(t.rounds, [0], "the target is away");
  target.find();
  await t.clock.advance(0);
  assert.deepEqual(t.rounds, [0, 5000]);
  assert.deepEqual(t.lines, []);
});

test("a run aborted by shutdown is not logged as a failure", async () => {
  let lines: readonly string[] = [];
  {
    await using t = patrolling({}, async (signal) => {
      await onAbort(signal);
      throw new Error("cut off");
    });
    lines = t.lines;
    await t.clock.advance(0);
  }
  assert.deepEqual(lines, []);
});

test("an event ends the interval early, in every interval", async () => {
  const asked: AbortSignal[] = [];
  let tell = () => {};
  const changed = (signal: AbortSignal) => {
    asked.push(signal);
    return new Promise<void>((resolve) => (tell = resolve));
  };
  await using t = patrolling({ changed }, () => {});
  await t.clock.advance(300);
  tell();
  await t.clock.advance(0);
  assert.deepEqual(t.rounds, [0, 300]);
  await t.clock.advance(1000);
  assert.deepEqual(t.rounds, [0, 300, 1300]);
  assert.deepEqual(
    asked.map(({ aborted }) => aborted),
    [true, true, false],
  );
});

test("a pause ends when its timer fires, its event occurs or its signal aborts, and leaves no timer", async () => {
  const clock = fakeClock();
  const stop = new AbortController();
  const news = Promise.withResolvers<void>();
  const ended: string[] = [];
  const never = new Promise<void>(() => {});
  void pause(clock, 1000, never, stop.signal).then(() => ended.push("time"));
  void pause(clock, 5000, news.promise, stop.signal).then(() => ended.push("news"));
  void pause(clock, undefined, never, stop.signal).then(() => ended.push("signal"));
  await clock.advance(1000);
  assert.deepEqual(ended, ["time"]);
  news.resolve();
  await clock.advance(0);
  assert.deepEqual(ended, ["time", "news"]);
  stop.abort();
  await clock.advance(0);
  assert.deepEqual(ended, ["time", "news", "signal"]);
  assert.equal(clock.pending, 0);
});
