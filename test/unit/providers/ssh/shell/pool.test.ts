import assert from "node:assert/strict";
import { test } from "node:test";
import { createPool } from "../../../../../providers/ssh/shell/shell-pool.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { never } from "../../../../fakes/signals.ts";

const soon = () => new Promise(setImmediate);

/** A pool whose shells are started by the test. */
function rig() {
  const starting: PromiseWithResolvers<Fake>[] = [];
  let made = 0;
  const shell = () => new Fake((made += 1));
  const clock = fakeClock();
  const pool = createPool<Fake>(() => {
    const start = Promise.withResolvers<Fake>();
    starting.push(start);
    return start.promise;
  }, clock);
  const started = async () => {
    const taken = pool.acquire(never);
    if (starting.length === 0) await clock.advance(500);
    starting.shift()?.resolve(shell());
    return taken;
  };
  const startedAll = async (count: number) => {
    const all: Fake[] = [];
    while (all.length < count) all.push(await started());
    return all;
  };
  return { clock, pool, starting, shell, started, startedAll };
}

class Fake {
  readonly number: number;
  lives = true;
  closed = false;
  constructor(number: number) {
    this.number = number;
  }
  usable = () => this.lives;
  close = () => void (this.closed = true);
}

test("a caller without an idle shell gets the first one released; the shell started for it is kept", async () => {
  const { pool, starting, shell, started } = rig();
  const first = await started();
  const second = pool.acquire(never);
  pool.release(first);
  assert.equal(await second, first);
  const spare = shell();
  starting.shift()?.resolve(spare);
  await soon();
  assert.equal(await pool.acquire(never), spare);
  assert.equal(starting.length, 0);
});

test("a caller gets the error of a failed start unless another shell is released first", async () => {
  const { pool, starting, started } = rig();
  const refused = assert.rejects(pool.acquire(never), { code: "unavailable" });
  starting.shift()?.reject(new CodedError("unavailable", "no more sessions"));
  await refused;
  const first = await started();
  const second = pool.acquire(never);
  pool.release(first);
  starting.shift()?.reject(new CodedError("unavailable", "no more sessions"));
  assert.equal(await second, first);
});

test("a caller waits half a second for one of six shells before another one is started for it", async () => {
  const { clock, pool, starting, shell, startedAll } = rig();
  const [first, second] = await startedAll(6);
  assert.ok(first && second);
  const [served, patient] = [pool.acquire(never), pool.acquire(never)];
  await clock.advance(499);
  assert.equal(starting.length, 0);
  pool.release(first);
  assert.equal(await served, first);
  await clock.advance(1);
  assert.equal(starting.length, 1);
  const another = shell();
  starting.shift()?.resolve(another);
  assert.equal(await patient, another);
});

test("starts at most twelve shells, and replaces a dead one for a waiting caller", async () => {
  const { clock, pool, starting, shell, startedAll } = rig();
  const all = await startedAll(12);
  const waiting = pool.acquire(never);
  await clock.advance(60_000);
  assert.equal(starting.length, 0);
  const [dead] = all;
  assert.ok(dead);
  dead.lives = false;
  pool.release(dead);
  const next = shell();
  starting.shift()?.resolve(next);
  assert.equal(await waiting, next);
});

test("the shell of an aborted caller goes to the next caller", async () => {
  const { pool, starting, shell } = rig();
  const giveUp = new AbortController();
  const given = assert.rejects(pool.acquire(giveUp.signal), { code: "cancelled" });
  const next = pool.acquire(never);
  const early = shell();
  starting.shift()?.resolve(early);
  giveUp.abort(new CodedError("cancelled", "enough"));
  await given;
  assert.equal(await next, early);
});

test("keeps at most six idle shells", async () => {
  const { pool, startedAll } = rig();
  const all = await startedAll(8);
  for (const shell of all) pool.release(shell);
  assert.deepEqual(
    all.map(({ closed }) => closed),
    [false, false, false, false, false, false, true, true],
  );
});

test("callers beyond the limit of shells also fail if every shell fails to start", async () => {
  const { pool, starting } = rig();
  const all = Array.from({ length: 13 }, () => pool.acquire(never));
  const refused = Promise.all(all.map((each) => assert.rejects(each, { code: "unavailable" })));
  for (let number = 0; number < 13; number += 1) {
    starting.shift()?.reject(new CodedError("unavailable", "the link is down"));
    await soon();
  }
  await refused;
});
