import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { terminalSizes } from "../../../src/streams/terminal-sizes.ts";

test("sizes come as they are told; more at once than any terminal says ends them", async () => {
  const stream = new PassThrough({ highWaterMark: 4 << 20 });
  const sizes = terminalSizes(stream)[Symbol.asyncIterator]();
  stream.write('{"Width":80,"Height":24}');
  assert.deepEqual((await sizes.next()).value, { width: 80, height: 24 });
  stream.write(Buffer.alloc(1 << 20, "{}"));
  assert.equal((await sizes.next()).done, true);
  stream.destroy();
});
