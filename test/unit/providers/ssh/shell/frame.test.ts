import assert from "node:assert/strict";
import { test } from "node:test";
import { ShellFrame } from "../../../../../providers/ssh/shell/shell.ts";

const marker = "0123456789abcdef0123456789abcdef0123";
const said = (data: string, words: string) => Buffer.from(`${data}${marker} ${words}\n`);

test("parses an answer in one chunk", () => {
  const answer = new ShellFrame(marker, 100).push(said("data\n", "0 3"));
  assert.deepEqual([answer?.data.toString(), answer?.words], ["data\n", ["0", "3"]]);
});

test("parses an answer in chunks of any size", () => {
  const whole = said(`${"some data\n".repeat(40)}no end`, "17");
  for (const size of [1, 2, 7, 36, 37, 80, 120, whole.length]) {
    const frame = new ShellFrame(marker, 1000);
    let answer: ReturnType<ShellFrame["push"]>;
    for (let at = 0; at < whole.length; at += size) {
      assert.equal(answer, undefined, "an answer before its end");
      answer = frame.push(whole.subarray(at, at + size));
    }
    assert.equal(answer?.data.toString(), `${"some data\n".repeat(40)}no end`);
    assert.deepEqual(answer.words, ["17"]);
  }
});

test("keeps no more data than the limit", () => {
  const frame = new ShellFrame(marker, 5);
  for (let index = 0; index < 50; index++) assert.equal(frame.push(Buffer.from("0123456789")), undefined);
  assert.equal(frame.push(said("tail", "0"))?.data.toString(), "01234");
});

test("ignores a marker within the data", () => {
  const frame = new ShellFrame(marker, 1000);
  assert.equal(frame.push(Buffer.from(`${marker} and on`)), undefined);
  assert.equal(frame.push(said(" goes it\n", "0"))?.data.toString(), `${marker} and on goes it\n`);
});
