import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import { podsConnection } from "../../../../../providers/ssh/host.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

function setUp() {
  const clock = fakeClock();
  const losing = new Map<Connection, AbortController>();
  const make = () => {
    const lost = new AbortController();
    const connection = { lost: lost.signal } as unknown as Connection;
    losing.set(connection, lost);
    return connection;
  };
  const live = [make()];
  const answers: { refusal?: Error; asked: number } = { asked: 0 };
  const link = {
    connection: async () => live[0] ?? assert.fail("the link is down"),
    connections: () => live,
    async openAnother() {
      answers.asked += 1;
      if (answers.refusal) throw answers.refusal;
      const connection = make();
      live.push(connection);
      return connection;
    },
  };
  const lose = (connection: Connection) => {
    live.splice(live.indexOf(connection), 1);
    losing.get(connection)?.abort();
  };
  return { clock, live, answers, lose, reach: podsConnection(link, clock) };
}

test("pods share one connection that is not the first", async () => {
  const { live, answers, reach } = setUp();
  const own = await reach();
  assert.equal(own, live[1]);
  assert.equal(await reach(), own);
  assert.equal(answers.asked, 1);
});

test("replaces the pods' connection if it is lost or has become the first", async () => {
  const { live, lose, reach } = setUp();
  const own = await reach();
  lose(own);
  const next = await reach();
  assert.notEqual(next, own);
  lose(live[0] ?? own);
  assert.notEqual(await reach(), next);
});

test("falls back to the first connection if the target accepts no other, and retries after a minute", async () => {
  const { live, answers, clock, reach } = setUp();
  answers.refusal = new CodedError("unavailable", "turned away");
  assert.equal(await reach(), live[0]);
  assert.equal(await reach(), live[0]);
  assert.equal(answers.asked, 1);
  delete answers.refusal;
  await clock.advance(61_000);
  assert.equal(await reach(), live[1]);
});
