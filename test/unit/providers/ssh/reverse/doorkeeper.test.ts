import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createDoorkeeper } from "../../../../../providers/ssh/reverse/doorkeeper.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

describe("login-attempt limiter", () => {
  const closed: string[] = [];
  const closing = (name: string) => () => void closed.push(name);

  test("addresses whose last login failed share a rate; others and successful ones do not", async () => {
    const clock = fakeClock();
    const keeper = createDoorkeeper(clock);
    keeper.enter("bad", closing("bad"))?.failed();
    const tries = (count: number) =>
      Array.from({ length: count }, () => {
        const visit = keeper.enter("bad", closing("bad"));
        visit?.failed();
        return visit;
      }).filter((visit) => visit !== undefined).length;
    assert.equal(tries(1000), 60);
    await clock.advance(1000);
    assert.equal(tries(1000), 30);
    assert.ok(keeper.enter("good", closing("good")));
    assert.equal(keeper.refusals(), 1 + 2000);
    await clock.advance(1000);
    keeper.enter("bad", closing("bad"))?.loggedIn();
    assert.equal(Array.from({ length: 90 }, () => keeper.enter("bad", closing("bad"))).filter(Boolean).length, 90);
  });

  test("at the limit, attempts of failing addresses are evicted, and rejected if all other addresses are clean", () => {
    const keeper = createDoorkeeper(fakeClock());
    keeper.enter("bad", closing("bad"))?.failed();
    const bad = Array.from({ length: 60 }, () => keeper.enter("bad", closing("bad")));
    for (let index = 0; index < 68; index += 1) assert.ok(keeper.enter(`clean-${index}`, closing(`clean-${index}`)));
    closed.length = 0;
    for (let index = 0; index < 60; index += 1) assert.ok(keeper.enter(`later-${index}`, closing(`later-${index}`)));
    assert.deepEqual(
      closed,
      Array.from({ length: 60 }, () => "bad"),
    );
    for (const visit of bad) visit?.failed();
    assert.equal(keeper.enter("bad", closing("bad")), undefined);
    closed.length = 0;
    assert.ok(keeper.enter("one more", closing("one more")));
    assert.equal(closed.length, 1, "one of the clean makes room");
  });

  test("an attempt ends once", () => {
    const keeper = createDoorkeeper(fakeClock());
    const visit = keeper.enter("a", closing("a"));
    visit?.loggedIn();
    visit?.failed();
    assert.equal(keeper.refusals(), 0);
  });
});
