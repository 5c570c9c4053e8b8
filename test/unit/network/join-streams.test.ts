import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { joinStreams } from "../../../src/network/join-streams.ts";

test("what one brings is written to the other before its memory is freed", async () => {
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
