import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { onAbort, onceThenIdle, runGroup, type Runnable, untilAborted } from "../../../src/lib/runnables.ts";
import { createSingleFlight } from "../../../src/lib/single-flight.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { never } from "../../fakes/signals.ts";

const turnOver = () => new Promise(setImmediate);

function service(name: string, seen: string[], more: Partial<Runnable> = {}): Runnable {
  return {
    name,
    async run(signal) {
      seen.push(`${name} runs`);
      await onAbort(signal);
      seen.push(`${name} ended`);
    },
    ...more,
  };
}

test("starts services in order, each once the previous one is ready, and stops them in reverse order", async () => {
  const seen: string[] = [];
  const ready = Promise.withResolvers<void>();
  const stop = new AbortController();
  const group = runGroup([service("a", seen, { ready: () => ready.promise }), service("b", seen)], stop.signal);
  await turnOver();
  assert.deepEqual(seen, ["a runs"]);
  ready.resolve();
  await turnOver();
  stop.abort();
  await group;
  assert.deepEqual(seen, ["a runs", "b runs", "b ended", "a ended"]);
});

test("the first failure stops all services and is thrown", async () => {
  const seen: string[] = [];
  const bad: Runnable = { name: "bad", run: () => Promise.reject(new Error("broken")) };
  await assert.rejects(runGroup([service("a", seen), bad], never), /broken/);
  assert.deepEqual(seen, ["a runs", "a ended"]);
});

test("a group that is stopped before its start runs nothing", async () => {
  const seen: string[] = [];
  await runGroup([service("a", seen)], AbortSignal.abort());
  assert.deepEqual(seen, []);
});

test("a group that is stopped while a service is not ready yet ends without an error", async () => {
  const seen: string[] = [];
  const stop = new AbortController();
  const ready = (signal: AbortSignal) => untilAborted(new Promise<void>(() => undefined), signal);
  const group = runGroup([service("a", seen, { ready }), service("b", seen)], stop.signal);
  await turnOver();
  stop.abort();
  await group;
  assert.deepEqual(seen, ["a runs", "a ended"]);
});

test("singleFlight: concurrent callers with the same key share a call; later callers start a new call", async () => {
  const flight = createSingleFlight<number>();
  let calls = 0;
  const call = async () => {
    calls += 1;
    await turnOver();
    return calls;
  };
  assert.deepEqual(await Promise.all([flight("k", call), flight("k", call), flight("other", call)]), [2, 2, 2]);
  assert.equal(await flight("k", call), 3);
  await assert.rejects(
    flight("k", () => Promise.reject(new Error("no"))),
    /no/,
  );
  assert.equal(await flight("k", call), 4);
});

test("semaphore: runs at most n tasks at once, in order, and frees the slot on failure", async () => {
  const turn = createSemaphore(2);
  let atOnce = 0;
  let most = 0;
  const order: number[] = [];
  const work = (id: number) => async () => {
    order.push(id);
    atOnce += 1;
    most = Math.max(most, atOnce);
    await turnOver();
    atOnce -= 1;
    if (id === 1) throw new Error("one");
    return id;
  };
  const results = await Promise.allSettled([0, 1, 2, 3, 4].map((id) => turn(work(id))));
  assert.equal(most, 2);
  assert.deepEqual(order, [0, 1, 2, 3, 4]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled", "fulfilled", "fulfilled"],
  );
});

test("a wait ends with the promise or the signal, whichever comes first, and rejects at once if the signal has aborted", async () => {
  const stop = new AbortController();
  const reason = new CodedError("cancelled", "stopped");
  assert.equal(await untilAborted(Promise.resolve(1), stop.signal), 1);
  assert.equal(await untilAborted(Promise.resolve(1)), 1);
  await assert.rejects(untilAborted(Promise.reject(new Error("broken")), stop.signal), /broken/);
  const never = Promise.withResolvers<void>();
  const waiting = untilAborted(never.promise, stop.signal);
  stop.abort(reason);
  await assert.rejects(waiting, reason);
  const late = Promise.withResolvers<void>();
  await assert.rejects(untilAborted(late.promise, stop.signal), reason);
  // A later rejection of the work must not be unhandled: the runner would fail this file.
  late.reject(new Error("too late"));
  await turnOver();
});

test("onceThenIdle does its work once, and undoes it when the service stops", async () => {
  const seen: string[] = [];
  const stop = new AbortController();
  const running = onceThenIdle("link", () => {
    seen.push("done");
    return () => void seen.push("undone");
  }).run(stop.signal);
  await turnOver();
  assert.deepEqual(seen, ["done"]);
  stop.abort();
  await running;
  assert.deepEqual(seen, ["done", "undone"]);
});

test("failing work stops the service, but work aborted by the shutdown does not count as failed", async () => {
  const broken = onceThenIdle("broken", () => Promise.reject(new Error("broken")));
  await assert.rejects(broken.run(never), /broken/);
  const stop = new AbortController();
  const waiting = onceThenIdle("waiting", (signal) => untilAborted(new Promise<void>(() => {}), signal));
  const running = waiting.run(stop.signal);
  stop.abort();
  await running;
});
