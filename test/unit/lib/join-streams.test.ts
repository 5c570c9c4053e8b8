import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { endWhenIdle, joinStreams } from "../../../src/lib/join-streams.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("writes a chunk to the other stream before its buffer is recycled", async () => {
  const brought = Array.from({ length: 4 }, (_, index) => Buffer.alloc(32 * 1024, index + 1));
  const written: string[] = [];
  let given = 0;
  const one = new Duplex({
    read() {
      this.push(brought[given++] ?? null);
    },
    write: (_block, _encoding, done) => done(),
  });
  const other = new Duplex({
    read() {
      this.push(null);
    },
    write(block: Buffer, _encoding, done) {
      setImmediate(() => {
        written.push(`${block.length} ${block[0]}`);
        done();
      });
    },
  });
  await joinStreams(one, other);
  assert.deepEqual(written, ["32768 1", "32768 2", "32768 3", "32768 4"]);
  assert.deepEqual(
    brought.map(({ length }) => length),
    [0, 0, 0, 0],
  );
});

test("resets a connection that was idle for a day", async (t) => {
  const clock = fakeClock();
  const server = createServer((socket) => void socket.on("error", () => undefined).pipe(socket)).listen(0, "127.0.0.1");
  t.after(() => void server.close());
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await once(socket, "connect");
  const dayMs = 24 * 60 * 60 * 1000;
  const stop = endWhenIdle(socket, clock);
  for (let day = 0; day < 3; day += 1) {
    socket.write("alive");
    await once(socket, "data");
    await clock.advance(dayMs);
  }
  assert.equal(socket.destroyed, false);
  await clock.advance(dayMs);
  assert.equal(socket.destroyed, true);
  stop();
  assert.equal(clock.pending, 0);
});
