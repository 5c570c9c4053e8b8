import assert from "node:assert/strict";
import { test } from "node:test";
import { createSandboxPacing } from "../../../src/runtime/sandbox-pacing.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";

function rig(cpus: number) {
  const clock = fakeClock();
  const pace = createSandboxPacing({ clock, cpus });
  const ends: PromiseWithResolvers<string>[] = [];
  const ask = (signal: AbortSignal = never) =>
    pace(() => {
      const end = Promise.withResolvers<string>();
      ends.push(end);
      return end.promise;
    }, signal);
  return { clock, ends, ask };
}

test("creates two sandboxes for each processor concurrently, and the others in order, one for each that has been created", async () => {
  const { clock, ends, ask } = rig(2);
  const asked = [1, 2, 3, 4, 5, 6].map(() => ask());
  await clock.advance(0);
  assert.equal(ends.length, 4);
  ends[1]?.resolve("second");
  assert.equal(await asked[1], "second");
  await clock.advance(0);
  assert.equal(ends.length, 5);
  ends[4]?.reject(new Error("no network"));
  await assert.rejects(asked[4] ?? Promise.resolve(), /no network/);
  await clock.advance(0);
  assert.equal(ends.length, 6);
});

test("a creation that hangs keeps others waiting for two seconds only, and still returns its result", async () => {
  const { clock, ends, ask } = rig(1);
  const hanging = [ask(), ask()];
  const next = ask();
  await clock.advance(1_900);
  assert.equal(ends.length, 2);
  await clock.advance(200);
  assert.equal(ends.length, 3);
  ends[2]?.resolve("next");
  assert.equal(await next, "next");
  await clock.advance(100_000);
  ends[0]?.resolve("late");
  ends[1]?.reject(new Error("timed out"));
  assert.equal(await hanging[0], "late");
  await assert.rejects(hanging[1] ?? Promise.resolve(), /timed out/);
});

test("a pod that is deleted while it waits gets no sandbox", async () => {
  const { clock, ends, ask } = rig(1);
  const first = [ask(), ask()];
  const stop = new AbortController();
  const waiting = ask(stop.signal);
  stop.abort(new Error("pod is being terminated"));
  await assert.rejects(waiting, /pod is being terminated/);
  for (const end of ends) end.resolve("");
  await Promise.all(first);
  await clock.advance(10_000);
  assert.equal(ends.length, 2);
});
