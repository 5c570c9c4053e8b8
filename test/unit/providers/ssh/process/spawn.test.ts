import assert from "node:assert/strict";
import { Duplex, PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import type { Sessions } from "../../../../../providers/ssh/connection/sessions.ts";
import { createSpawner } from "../../../../../providers/ssh/process/spawn.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { never } from "../../../../fakes/signals.ts";

/** A session whose shell's output is controlled by the test. */
function shellThat() {
  const written: string[] = [];
  const seen = { closed: false };
  const channel = Object.assign(
    new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        written.push(chunk.toString());
        done();
      },
    }),
    { stderr: new PassThrough(), close: () => void (seen.closed = true) },
  );
  const clock = fakeClock();
  const spawn = createSpawner({
    link: { countExchange: () => undefined },
    sessions: {
      open: async () => ({
        channel,
        connection: { lost: never, onLost: () => () => undefined, whenWritable: (send: () => void) => send() },
      }),
    } as unknown as Sessions,
    groups: { killOnLoss: () => () => undefined, kill: () => undefined },
    clock,
    command: async () => "sh",
  });
  return { channel, clock, spawn, seen, marker: () => /echo (\S+) \$\$/.exec(written.join(""))?.[1] ?? "" };
}

test("drops output before the marker line and forwards output after it", async () => {
  const { channel, spawn, marker } = shellThat();
  const spawning = spawn(["cat"]);
  await turn();
  const said = `Welcome!\n${marker()} 7 8 9\nout`;
  for (const letter of said) {
    channel.push(letter);
    await turn();
  }
  const child = await spawning;
  assert.equal(child.pid, 7);
  channel.push(null);
  assert.equal(await text(child.stdout), "out");
});

test("fails if the shell prints too much before the command, in chunks of any size", async () => {
  for (const size of [1, 32 * 1024]) {
    const { channel, spawn, seen } = shellThat();
    const spawning = assert.rejects(spawn(["cat"]), {
      code: "failed_precondition",
      message: /printed more than 65536/,
    });
    for (let said = 0; said <= 96 * 1024 && !seen.closed; said += size) {
      channel.push(Buffer.alloc(size, "x"));
      if (said % (16 * size) === 0) await turn();
    }
    await spawning;
    assert.equal(seen.closed, true);
  }
});

test("times out after a minute if the shell prints nothing", async () => {
  const { clock, spawn, seen } = shellThat();
  const spawning = assert.rejects(spawn(["cat"]), { code: "deadline_exceeded" });
  await turn();
  await clock.advance(60_000);
  await spawning;
  assert.equal(seen.closed, true);
});
