import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedAuthenticator, cachedAuthorizer } from "../../../src/server/review-cache.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { never } from "../../fakes/signals.ts";

const signal = never;
const { tokenCache } = unmeasured;

test("caches the result for valid and invalid tokens until the TTL expires, but not failures", async () => {
  const clock = fakeClock();
  const asked: string[] = [];
  const inner = {
    byToken: (token: string) => {
      asked.push(token);
      if (token === "broken") return Promise.reject(new Error("away"));
      return Promise.resolve(token === "good" ? { name: "alice", groups: [] } : undefined);
    },
  };
  const cached = cachedAuthenticator(inner, clock, 120_000, tokenCache);
  for (const token of ["good", "bad", "good", "bad"]) await cached.byToken(token, "", signal);
  assert.deepEqual(asked, ["good", "bad"]);
  assert.equal((await cached.byToken("good", "", signal))?.name, "alice");
  await assert.rejects(cached.byToken("broken", "", signal));
  await assert.rejects(cached.byToken("broken", "", signal));
  await clock.advance(120_000);
  await cached.byToken("good", "", signal);
  assert.deepEqual(asked, ["good", "bad", "broken", "broken", "good"]);
});

test("caches positive results longer than negative ones, and includes all inputs in the key", async () => {
  const clock = fakeClock();
  let asked = 0;
  let answer = true;
  const cached = cachedAuthorizer({ allowed: () => (asked++, Promise.resolve(answer)) }, clock, {
    allowedMs: 300_000,
    deniedMs: 30_000,
  });
  const alice = { name: "alice", groups: ["a"] };
  const ask = (user = alice, verb = "get", subresource = "proxy") =>
    cached.allowed(user, verb, subresource, "/pods", signal);
  assert.ok(await ask());
  answer = false;
  assert.ok(await ask());
  assert.equal(asked, 1);
  assert.equal(await ask({ name: "alice", groups: ["b"] }), false);
  assert.equal(await ask(alice, "create"), false);
  assert.equal(await ask(alice, "get", "stats"), false);
  assert.equal(asked, 4);
  answer = true;
  assert.equal(await ask(alice, "create"), false);
  await clock.advance(30_000);
  assert.equal(await ask(alice, "create"), true);
  answer = false;
  await clock.advance(270_000);
  assert.equal(await ask(), false);
});

test("forged tokens evict no positive result", async () => {
  let asked = 0;
  const good = { name: "alice", groups: [] };
  const inner = { byToken: (token: string) => (asked++, Promise.resolve(token === "good" ? good : undefined)) };
  const cached = cachedAuthenticator(inner, fakeClock(), 120_000, tokenCache);
  await cached.byToken("good", "", signal);
  for (let index = 0; index < 5000; index++) await cached.byToken(`${index}`, "", signal);
  assert.equal(asked, 5001);
  assert.deepEqual(await cached.byToken("good", "", signal), good);
  assert.equal(asked, 5001);
});

test("limits the number of cached results", async () => {
  let asked = 0;
  const cached = cachedAuthenticator(
    { byToken: () => (asked++, Promise.resolve(undefined)) },
    fakeClock(),
    120_000,
    tokenCache,
  );
  for (let index = 0; index < 5000; index++) await cached.byToken(`${index}`, "", signal);
  await cached.byToken("4999", "", signal);
  assert.equal(asked, 5000);
  await cached.byToken("0", "", signal);
  assert.equal(asked, 5001);
});

test("counts cache hits and misses, and reviews by result; a review without an answer counts as not valid", async () => {
  const clock = fakeClock();
  const counted: string[] = [];
  const cached = cachedAuthenticator(
    {
      async byToken(token) {
        await clock.advance(40);
        if (token === "broken") throw new Error("away");
        return token === "good" ? { name: "alice", groups: [] } : undefined;
      },
    },
    clock,
    120_000,
    {
      looked: (isHit, ms) => void counted.push(`${isHit ? "hit" : "miss"} ${ms}`),
      fetching: () => (isValid) => void counted.push(isValid ? "valid" : "not valid"),
    },
  );
  for (const token of ["good", "good", "bad"]) await cached.byToken(token, "", signal);
  await assert.rejects(cached.byToken("broken", "", signal));
  assert.deepEqual(counted, ["valid", "miss 40", "hit 0", "not valid", "miss 40", "not valid", "miss 40"]);
});
