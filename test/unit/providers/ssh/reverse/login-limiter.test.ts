import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createLoginLimiter, type LoginAttempt } from "../../../../../providers/ssh/reverse/login-limiter.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

describe("login-attempt limiter", () => {
  const closed: string[] = [];
  const closing = (name: string) => () => void closed.push(name);

  test("addresses whose last login failed share a rate limit; other addresses are not limited", async () => {
    const clock = fakeClock();
    const keeper = createLoginLimiter(clock);
    keeper.admit("bad", closing("bad"))?.failed();
    const tries = (count: number) =>
      Array.from({ length: count }, () => {
        const visit = keeper.admit("bad", closing("bad"));
        visit?.failed();
        return visit;
      }).filter((visit) => visit !== undefined).length;
    assert.equal(tries(1000), 60);
    await clock.advance(1000);
    assert.equal(tries(1000), 30);
    assert.ok(keeper.admit("good", closing("good")));
    assert.equal(keeper.rejections(), 1 + 2000);
    await clock.advance(1000);
    keeper.admit("bad", closing("bad"))?.loggedIn();
    assert.equal(Array.from({ length: 90 }, () => keeper.admit("bad", closing("bad"))).filter(Boolean).length, 64);
  });

  test("300 machines behind one address that connect at once all log in within a minute, with 80 ms of CPU time each", async () => {
    const clock = fakeClock();
    const keeper = createLoginLimiter(clock);
    /** Attempts with the CPU time that they still need, milliseconds; they share one processor. */
    const attempts = new Set<{ leftMs: number; readonly until: number; readonly visit: LoginAttempt }>();
    const comeAt = Array.from({ length: 300 }, (_, index) => (index * 7_919) % 2_000);
    const stepMs = 10;
    let loggedIn = 0;
    // A machine whose connection was closed comes again five seconds later.
    const comeAgain = () => void comeAt.push(clock.monotonic() - began + 5_000);
    const began = clock.monotonic();
    for (let now = 0; now < 60_000; now += stepMs) {
      for (const at of comeAt.splice(0)) {
        const visit = at > now ? undefined : keeper.admit("nat", comeAgain);
        if (at > now) comeAt.push(at);
        else if (visit) attempts.add({ leftMs: 80, until: now + 10_000, visit });
        else comeAgain();
      }
      for (const attempt of attempts) attempt.leftMs -= stepMs / attempts.size;
      for (const attempt of [...attempts].filter(({ leftMs, until }) => leftMs <= 0 || now >= until)) {
        attempts.delete(attempt);
        if (attempt.leftMs <= 0) {
          loggedIn += 1;
          attempt.visit.loggedIn();
        } else {
          attempt.visit.failed();
          comeAgain();
        }
      }
      await clock.advance(stepMs);
    }
    assert.equal(loggedIn, 300);
  });

  test("at the limit, attempts of failing addresses are evicted, and rejected if all other addresses are clean", () => {
    const keeper = createLoginLimiter(fakeClock());
    keeper.admit("bad", closing("bad"))?.failed();
    const bad = Array.from({ length: 60 }, () => keeper.admit("bad", closing("bad")));
    for (let index = 0; index < 68; index += 1) assert.ok(keeper.admit(`clean-${index}`, closing(`clean-${index}`)));
    closed.length = 0;
    for (let index = 0; index < 60; index += 1) assert.ok(keeper.admit(`later-${index}`, closing(`later-${index}`)));
    assert.deepEqual(
      closed,
      Array.from({ length: 60 }, () => "bad"),
    );
    for (const visit of bad) visit?.failed();
    assert.equal(keeper.admit("bad", closing("bad")), undefined);
    closed.length = 0;
    assert.ok(keeper.admit("one more", closing("one more")));
    assert.equal(closed.length, 1, "one of the clean makes room");
  });

  test("an attempt is ended only once", () => {
    const keeper = createLoginLimiter(fakeClock());
    const visit = keeper.admit("a", closing("a"));
    visit?.loggedIn();
    visit?.failed();
    assert.equal(keeper.rejections(), 0);
  });
});
