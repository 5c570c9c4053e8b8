import assert from "node:assert/strict";
import { test } from "node:test";
import { Frame } from "../../../../../providers/ssh/shell/frame.ts";

const marker = "0123456789abcdef0123456789abcdef0123";
const said = (data: string, words: string) => Buffer.from(`${data}${marker} ${words}\n`);

test("an answer in one piece", () => {
  const answer = new Frame(marker, 100).push(said("data\n", "0 3"));
  assert.deepEqual([answer?.data.toString(), answer?.words], ["data\n", ["0", "3"]]);
});

test("an answer in pieces of any size", () => {
  const whole = said(`${"some data\n".repeat(40)}no end`, "17");
  for (const size of [1, 2, 7, 36, 37, 80, 120, whole.length]) {
    const frame = new Frame(marker, 1000);
    let answer: ReturnType<Frame["push"]>;
    for (let at = 0; at < whole.length; at += size) {
      assert.equal(answer, undefined, "an answer before its end");
      answer = frame.push(whole.subarray(at, at + size));
    }
    assert.equal(answer?.data.toString(), `${"some data\n".repeat(40)}no end`);
    assert.deepEqual(answer.words, ["17"]);
  }
});

test("no more is kept than asked", () => {
  const frame = new Frame(marker, 5);
  for (let index = 0; index < 50; index++) assert.equal(frame.push(Buffer.from("0123456789")), undefined);
  assert.equal(frame.push(said("tail", "0"))?.data.toString(), "01234");
});

test("a marker within the data that does not end it does not count", () => {
  const frame = new Frame(marker, 1000);
  assert.equal(frame.push(Buffer.from(`${marker} and on`)), undefined);
  assert.equal(frame.push(said(" goes it\n", "0"))?.data.toString(), `${marker} and on goes it\n`);
});
