import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { startLockHolder } from "../../../src/host/lock-holder.ts";
import type { HostProcess } from "../../../src/seams/host.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { argvOf } from "../../harness/argv.ts";

const pulse = { intervalMs: 15_000, timeoutSeconds: 60 };

/** A lock holder on a machine whose clock a test moves. It echoes heartbeats while `answers` is true. */
async function start() {
  const clock = fakeClock();
  const skipped = { monotonic: 0, wall: 0 };
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const exited = Promise.withResolvers<number>();
  const state = { answers: true, beats: 0, killed: false };
  stdin.on("data", (chunk: Buffer) => {
    state.beats += chunk.length;
    if (state.answers) stdout.write(chunk);
  });
  const process: HostProcess = {
    pid: 1,
    stdin,
    stdout,
    stderr,
    exited: exited.promise,
    kill: () => void (state.killed = true),
    [Symbol.asyncDispose]: async () => exited.resolve(0),
  };
  const spawn = async () => {
    setImmediate(() => stdout.write("held\n"));
    return process;
  };
  const seen = {
    after: clock.after,
    now: () => clock.now() + skipped.wall,
    monotonic: () => clock.monotonic() + skipped.monotonic,
  };
  const held = await startLockHolder({ spawn }, argvOf(["hold"]), never, { ...pulse, clock: seen });
  assert.ok("ended" in held);
  return {
    clock,
    state,
    held,
    exit: () => exited.resolve(137),
    say: (text: string) => stdout.write(text),
    /** The process is stalled for this long, and none of its timers fires. */
    standStill: (ms: number) => {
      skipped.monotonic += ms;
      skipped.wall += ms;
    },
    /** The machine is suspended: the monotonic clock stops. */
    sleep: (ms: number) => void (skipped.wall += ms),
  };
}

test("while the command answers heartbeats, the lease is valid and needs no other probes", async () => {
  const { clock, held, state } = await start();
  for (let minutes = 0; minutes < 10; minutes++) {
    await clock.advance(60_000);
    assert.equal(held.isVerified(), true);
    await held.verify();
  }
  assert.equal(state.beats, 40);
});

test("probes the command at once after this process was suspended", async () => {
  for (const how of ["standStill", "sleep"] as const) {
    const t = await start();
    t[how](50_000);
    assert.equal(t.held.isVerified(), false, how);
    await t.held.verify();
    assert.deepEqual([t.held.isVerified(), t.state.beats], [true, 1], how);
  }
});

test("the answer to a heartbeat that was sent before the suspension does not renew the lease", async () => {
  const t = await start();
  t.state.answers = false;
  await t.clock.advance(15_000);
  t.standStill(90_000);
  let verified = false;
  const verifying = t.held.verify().then(() => (verified = true));
  t.say(".");
  await t.clock.advance(0);
  assert.deepEqual([verified, t.held.isVerified()], [false, false]);
  t.say(".");
  await verifying;
  assert.equal(t.held.isVerified(), true);
});

test("answers without a heartbeat do not renew the lease", async () => {
  const t = await start();
  t.say(".".repeat(1000));
  await t.clock.advance(0);
  t.standStill(90_000);
  t.say(".".repeat(1000));
  await t.clock.advance(0);
  assert.equal(t.held.isVerified(), false);
});

test("waiting for the lease fails once the command has ended", async () => {
  const t = await start();
  t.state.answers = false;
  t.standStill(90_000);
  const waiting = assert.rejects(t.held.verify(), { code: "unavailable" });
  t.exit();
  await waiting;
  await t.held.ended;
  assert.deepEqual([t.held.isVerified(), t.held.hasEnded()], [false, true]);
});

test("kills a command that misses heartbeats for its timeout, and treats it as ended", async () => {
  const t = await start();
  t.state.answers = false;
  await t.clock.advance(74_000);
  assert.deepEqual([t.held.isVerified(), t.held.hasEnded(), t.state.killed], [false, false, false]);
  await t.clock.advance(1_000);
  assert.deepEqual([t.held.hasEnded(), t.state.killed], [true, true]);
  assert.equal(t.clock.pending, 0);
});
