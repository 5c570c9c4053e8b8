import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { test } from "node:test";
import { createBackoff } from "../../../src/lib/backoff.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { codeOf } from "../../../src/lib/errors.ts";
import { rfc3339 } from "../../../src/lib/rfc3339.ts";
import { createWorkQueue } from "../../../src/lib/work-queue.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("the fake clock fires timers in order and settles promises in between", async () => {
  const clock = fakeClock(0);
  const seen: string[] = [];
  clock.after(20, () => seen.push(`b${clock.now()}`));
  clock.after(10, () => {
    seen.push(`a${clock.now()}`);
    void clock.sleep(5).then(() => seen.push(`slept${clock.now()}`));
  });
  clock.after(30, () => seen.push("late")).cancel();
  await clock.advance(25);
  assert.deepEqual(seen, ["a10", "slept15", "b20"]);
  assert.equal(clock.monotonic(), 25);
  assert.equal(clock.pending, 0);
});

test("sleep rejects as soon as its signal aborts, and leaves no timer", async () => {
  const clock = fakeClock();
  const stop = new AbortController();
  const sleeping = clock.sleep(1000, stop.signal);
  stop.abort();
  await assert.rejects(sleeping, { code: "cancelled" });
  assert.equal(clock.pending, 0);
  await assert.rejects(clock.sleep(1000, stop.signal), { code: "cancelled" });
});

test("within aborts with deadline_exceeded, or earlier if the caller's signal aborts", async () => {
  const clock = fakeClock();
  const deadline = clock.within(100);
  await clock.advance(99);
  assert.equal(deadline.aborted, false);
  await clock.advance(1);
  assert.equal(codeOf(deadline.reason), "deadline_exceeded");
  const stop = new AbortController();
  const joined = systemClock().within(60_000, stop.signal);
  stop.abort();
  assert.equal(joined.aborted, true);
});

/** Stalls this process. */
function holdUp(ms: number): void {
  for (const since = performance.now(); performance.now() - since < ms; );
}

test("extends a deadline by the time for which the process was stalled, so that pending input is handled first", async () => {
  const server = createServer((connection) => connection.end());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const deadline = systemClock().within(100);
  const inTime: string[] = [];
  const connection = connect(port, "127.0.0.1");
  connection.on("connect", () => {
    inTime.push(deadline.aborted ? "too late" : "connected");
    setTimeout(() => inTime.push(deadline.aborted ? "too late" : "answered"), 20);
  });
  holdUp(300);
  await once(deadline, "abort");
  connection.destroy();
  server.close();
  assert.deepEqual(inTime, ["connected", "answered"]);
  assert.equal(codeOf(deadline.reason), "deadline_exceeded");
});

test("back-off doubles up to its maximum, expires after twice the maximum, and can be reset", async () => {
  const clock = fakeClock();
  const backoff = createBackoff({ clock, initialMs: 10, maxMs: 35 });
  assert.deepEqual([backoff.next("k"), backoff.next("k"), backoff.next("k"), backoff.next("k")], [10, 20, 35, 35]);
  assert.equal(backoff.remaining("k"), 35);
  await clock.advance(30);
  assert.equal(backoff.remaining("k"), 5);
  assert.equal(backoff.remaining("other"), 0);
  await clock.advance(41);
  assert.equal(backoff.remaining("k"), 0);
  assert.equal(backoff.next("k"), 10);
  backoff.reset("k");
  assert.equal(backoff.delay("k"), 0);
});

test("collect drops only expired entries", async () => {
  const clock = fakeClock();
  const backoff = createBackoff({ clock, initialMs: 10, maxMs: 10 });
  backoff.next("old");
  await clock.advance(15);
  backoff.next("new");
  await clock.advance(10);
  backoff.collect();
  assert.deepEqual([backoff.delay("old"), backoff.delay("new")], [0, 10]);
});

test("the work queue keeps the earliest due time of a key, and returns each key once", async () => {
  const clock = fakeClock();
  const due: string[] = [];
  const queue = createWorkQueue(clock, (key) => due.push(`${key}@${clock.monotonic()}`));
  queue.add("a", 50);
  queue.add("a", 20);
  queue.add("a", 40);
  queue.add("b", 30);
  queue.add("c", 10);
  queue.drop("c");
  await clock.advance(100);
  assert.deepEqual(due, ["a@20", "b@30"]);
  queue.add("a", 10);
  queue.stop();
  await clock.advance(100);
  assert.equal(due.length, 2);
});

test("formats times as RFC 3339 in whole seconds", () => {
  assert.equal(rfc3339(Date.UTC(2026, 6, 4, 1, 2, 3, 999)), "2026-07-04T01:02:03Z");
  assert.equal(rfc3339(0), "1970-01-01T00:00:00Z");
});

test("a deadline that is cancelled by input which arrived while the process was stalled does not fire", async () => {
  const server = createServer((connection) => connection.end("pong"));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const connection = connect(port, "127.0.0.1");
  await once(connection, "connect");
  const clock = systemClock();
  const fired: string[] = [];
  const answered = clock.deadline(100, () => fired.push("answered"));
  connection.once("data", () => answered.cancel());
  const silent = new Promise<void>((resolve) => {
    clock.deadline(101, () => {
      fired.push("silent");
      resolve();
    });
  });
  holdUp(300);
  await silent;
  await clock.sleep(50);
  connection.destroy();
  server.close();
  assert.deepEqual(fired, ["silent"]);
});
