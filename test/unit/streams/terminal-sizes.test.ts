import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { terminalSizes } from "../../../src/streams/terminal-sizes.ts";

test("yields sizes as they arrive; oversized input ends them", async () => {
  const stream = new PassThrough({ highWaterMark: 4 << 20 });
  const sizes = terminalSizes(stream)[Symbol.asyncIterator]();
  stream.write('{"Width":80,"Height":24}');
  assert.deepEqual((await sizes.next()).value, { width: 80, height: 24 });
  stream.write(Buffer.alloc(1 << 20, "{}"));
  assert.equal((await sizes.next()).done, true);
  stream.destroy();
});
