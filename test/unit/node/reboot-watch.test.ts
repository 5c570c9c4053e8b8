import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createRebootWatch } from "../../../src/node/reboot-watch.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeLink } from "../../fakes/link.ts";
import { silent } from "../api/fake-client.ts";

/** Locks that a test can take away or leave unverified. */
function fakeClaim() {
  const listeners = new Set<() => void>();
  let doubt: PromiseWithResolvers<void> | undefined;
  return {
    isVerified: () => doubt === undefined,
    verify: async () => doubt?.promise,
    onLost(listener: () => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    lose: () => {
      for (const listener of listeners) listener();
    },
    doubt: () => void (doubt = Promise.withResolvers<void>()),
    settle(held: boolean) {
      const { resolve, reject } = doubt ?? assert.fail();
      doubt = undefined;
      if (held) resolve();
      else reject(new CodedError("unavailable", "lost"));
    },
    get listeners() {
      return listeners.size;
    },
  };
}

/** A watch of a target that a test can reboot; `waiting` reports on a pass that waits to act on the target. */
async function start() {
  const clock = fakeClock();
  const link = fakeLink();
  const claim = fakeClaim();
  const state = { bootId: "life-1", answers: true, reads: 0, reboots: 0, unfit: undefined as string | undefined };
  const watch = createRebootWatch({
    host: {
      clock: {
        offsetMs: async () => 0,
        async bootId() {
          state.reads += 1;
          const { bootId, answers } = state;
          await clock.sleep(100);
          if (!answers || link.trouble()) throw new CodedError("unavailable", "gone");
          return bootId;
        },
      },
    },
    link,
    claim,
    bootID: "life-1",
    unfit: async () => state.unfit,
    onReboot: () => void (state.reboots += 1),
    clock,
    log: silent,
  });
  const stop = new AbortController();
  const running = watch.run(stop.signal);
  await clock.advance(100);
  const pass = async (): Promise<() => string> => {
    let went = "waits";
    watch.present(stop.signal).then(
      (lost) => {
        went = "goes on";
        lost.addEventListener("abort", () => (went = "lost"));
      },
      () => (went = "cancelled"),
    );
    await clock.advance(0);
    return () => went;
  };
  return {
    clock,
    link,
    claim,
    state,
    pass,
    async end() {
      stop.abort();
      await clock.advance(100);
      await running;
    },
    async [Symbol.asyncDispose]() {
      await this.end();
      assert.deepEqual([link.listeners, claim.listeners], [0, 0]);
    },
  };
}

test("does not delay work on a target that is not lost, and checks it once", async () => {
  await using t = await start();
  assert.equal((await t.pass())(), "goes on");
  await t.clock.advance(600_000);
  assert.deepEqual([t.state.reads, t.state.reboots], [1, 0]);
});

test("stops passes when the target is lost, and continues once it is back without a reboot", async () => {
  await using t = await start();
  const before = await t.pass();
  t.link.cut();
  const whileDown = await t.pass();
  assert.deepEqual([before(), whileDown()], ["lost", "waits"]);
  await t.clock.advance(60_000);
  assert.equal(whileDown(), "waits");
  assert.equal(t.state.reads, 1, "it is not asked while it is out of reach");
  t.link.mend();
  const pass = await t.pass();
  assert.equal(pass(), "waits");
  await t.clock.advance(100);
  assert.deepEqual([pass(), whileDown(), t.state.reboots], ["goes on", "goes on", 0]);
});

test("if one of several connections is lost, current passes end and later ones wait for a check", async () => {
  await using t = await start();
  const before = await t.pass();
  t.link.thin();
  const after = await t.pass();
  assert.deepEqual([before(), after()], ["lost", "waits"]);
  await t.clock.advance(100);
  assert.deepEqual([after(), t.state.reads, t.state.reboots], ["goes on", 2, 0]);
});

test("if a lock is lost while the link works, current passes end and later ones wait for a check", async () => {
  await using t = await start();
  const before = await t.pass();
  t.claim.lose();
  const after = await t.pass();
  assert.deepEqual([before(), after()], ["lost", "waits"]);
  await t.clock.advance(100);
  assert.deepEqual([after(), t.state.reads, t.state.reboots], ["goes on", 2, 0]);
});

test("a pass waits while the lock is not verified", async () => {
  await using t = await start();
  t.claim.doubt();
  const pass = await t.pass();
  assert.equal(pass(), "waits");
  t.claim.settle(true);
  await t.clock.advance(0);
  assert.deepEqual([pass(), t.state.reads], ["goes on", 1]);
  t.claim.doubt();
  const next = await t.pass();
  t.state.unfit = "another has the lock";
  t.claim.settle(false);
  await t.clock.advance(100);
  assert.deepEqual([pass(), next(), t.state.reboots], ["lost", "waits", 1]);
});

test("a reboot ends the run before any pass continues", async () => {
  await using t = await start();
  t.link.cut();
  t.state.bootId = "life-2";
  t.link.mend();
  const pass = await t.pass();
  await t.clock.advance(60_000);
  assert.deepEqual([pass(), t.state.reboots], ["waits", 1]);
  await t.end();
  await t.clock.advance(0);
  assert.equal(pass(), "cancelled");
});

test("ignores the result of a check that began before another loss", async () => {
  await using t = await start();
  t.link.cut();
  t.link.mend();
  await t.clock.advance(50);
  t.link.cut();
  t.state.bootId = "life-2";
  t.link.mend();
  const pass = await t.pass();
  await t.clock.advance(50);
  assert.deepEqual([pass(), t.state.reads], ["waits", 3]);
  await t.clock.advance(100);
  assert.deepEqual([pass(), t.state.reboots], ["waits", 1]);
});

test("checks again if the target comes back but does not respond", async () => {
  await using t = await start();
  t.state.answers = false;
  t.link.cut();
  t.link.mend();
  const pass = await t.pass();
  await t.clock.advance(100);
  assert.equal(pass(), "waits");
  t.state.answers = true;
  await t.clock.advance(1_100);
  assert.deepEqual([pass(), t.state.reboots], ["goes on", 0]);
});

test("notices a reboot between reading the facts and starting the watch", async () => {
  await using t = await start();
  t.link.cut();
  t.state.bootId = "life-2";
  await t.clock.advance(10_000);
  assert.equal(t.state.reboots, 0);
  t.link.mend();
  await t.clock.advance(100);
  assert.equal(t.state.reboots, 1);
});

test("ends the run if the target changed or belongs to another node, before any pass continues", async () => {
  await using t = await start();
  t.link.cut();
  t.state.unfit = "another graftlet has it";
  t.link.mend();
  const pass = await t.pass();
  await t.clock.advance(60_000);
  assert.deepEqual([pass(), t.state.reboots], ["waits", 1]);
});
