import assert from "node:assert/strict";
import { test } from "node:test";
import { createTokenSigners } from "../../../src/api/token-signers.ts";
import { boundedAccess, boundedTokens } from "../../../src/server/review-cache.ts";
import { fakeClock } from "../../fakes/clock.ts";

const { signal } = new AbortController();
/** An unexpired JWT with this header and signature. */
const jwt = (head: string, signature: string) => {
  const claims = { iss: "https://cluster", exp: Date.UTC(2030, 0, 1) / 1000 };
  return `${head}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${signature}`;
};
const alice = { name: "alice", groups: [] };

/** An API server that takes 20 ms to review a token, which is valid if it ends in `.good`. */
function start() {
  const clock = fakeClock();
  let now = 0;
  let most = 0;
  const byToken = async (token: string) => {
    most = Math.max(most, ++now);
    await clock.sleep(20);
    now -= 1;
    return token.endsWith(".good") ? alice : undefined;
  };
  const signers = createTokenSigners(clock);
  const bounded = boundedTokens({ byToken }, signers, clock);
  let refused = 0;
  const flood = async (tokenOf: (index: number) => string, seconds: number) => {
    for (let tenth = 0; tenth < seconds * 10; tenth++) {
      for (let index = 0; index < 200; index++)
        bounded(tokenOf(tenth * 200 + index), "10.0.0.1", signal).catch(() => (refused += 1));
      await clock.advance(100);
    }
  };
  /** Milliseconds until the review of the token ends. */
  const known = async (token: string, from: string) => {
    const at = clock.monotonic();
    const asked = bounded(token, from, signal).then((user) => {
      assert.deepEqual(user, alice);
      return clock.monotonic() - at;
    });
    for (let passed = 0; passed < 2000; passed += 10) await clock.advance(10);
    return asked;
  };
  return { clock, signers, flood, known, most: () => most, refused: () => refused };
}

test("forged tokens from an address delay no valid tokens, neither from other addresses nor from the same one", async () => {
  const api = start();
  await api.flood((index) => (index % 2 === 0 ? `made-up-${index}` : `head.${index}.bad`), 2);
  assert.ok(api.refused() > 1000, `${api.refused()} were refused`);
  assert.ok(api.most() <= 16, `${api.most()} at once`);
  assert.ok((await api.known("an-opaque.good", "10.0.0.2")) < 100);
  await api.flood((index) => `made-up-${index}`, 1);
  assert.ok((await api.known(jwt("other", "good"), "10.0.0.1")) < 100);
});

test("forged JWTs do not delay a token whose signing key has issued a pod's token", async () => {
  const api = start();
  api.signers.recordValid(jwt("head", "of-a-pod"));
  await api.flood((index) => jwt(`made${index}`, "up"), 2);
  assert.ok((await api.known(jwt("head", "good"), "10.0.0.1")) < 100);
});

test("access reviews of several users take turns", async () => {
  const clock = fakeClock();
  const allowed = async () => {
    await clock.sleep(20);
    return true;
  };
  const bounded = boundedAccess({ allowed }, clock);
  for (let index = 0; index < 1000; index++)
    bounded({ name: "mallory", groups: [`${index}`] }, "get", "pods", "/pods", signal).catch(() => undefined);
  let answered = false;
  void bounded(alice, "get", "proxy", "/pods", signal).then((yes) => (answered = yes));
  await clock.advance(60);
  assert.ok(answered);
});
