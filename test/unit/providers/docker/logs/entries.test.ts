import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type LogEntryParser,
  createFramedParser,
  createTerminalParser,
  createRepeatFilter,
} from "../../../../../providers/docker/logs/logs.ts";
import type { LogLine } from "../../../../../src/seams/runtime.ts";
import { cut, frame } from "../framing.ts";

const time = (second: number) => `2026-01-01T00:00:${String(second).padStart(2, "0")}.123456789Z`;

function read(entries: LogEntryParser, bytes: Buffer, size: number) {
  const lines = [...cut(bytes, size).flatMap((block) => [...entries.parse(block)]), ...entries.flush()];
  return lines.map(({ time: at, stream, text, partial }) => [at, stream, text.toString(), partial]);
}

for (const size of [1, 33, 4096, 1_000_000]) {
  test(`parses frames in blocks of ${size} into one line each, and partial lines without a newline`, () => {
    const long = "x".repeat(16_384);
    const bytes = Buffer.concat([
      frame(1, `${time(1)} one\n`),
      frame(2, `${time(2)} grüße\n`),
      frame(1, `${time(3)} ${long}`),
      frame(1, `${time(3)} end\n`),
      frame(1, `${time(4)} \n`),
    ]);
    assert.deepEqual(read(createFramedParser(), bytes, size), [
      [time(1), "stdout", "one\n", false],
      [time(2), "stderr", "grüße\n", false],
      [time(3), "stdout", long, true],
      [time(3), "stdout", "end\n", false],
      [time(4), "stdout", "\n", false],
    ]);
  });

  test(`splits a terminal's output in blocks of ${size} at timestamps; the last line may be incomplete`, () => {
    const long = "x".repeat(16_384);
    // Invalid UTF-8 is longer in the response than in the line.
    const longer = `${"x".repeat(16_380)}\ufffd\ufffd`;
    const bytes = Buffer.from(
      `${time(1)} one\r\n${time(2)} ${long}${time(2)} ${longer}${time(2)} end Z \r\n${time(3)} said at ${time(9)} \r\n${time(4)} $ `,
    );
    assert.deepEqual(read(createTerminalParser(), bytes, size), [
      [time(1), "stdout", "one\r\n", false],
      [time(2), "stdout", long, true],
      [time(2), "stdout", longer, true],
      [time(2), "stdout", "end Z \r\n", false],
      [time(3), "stdout", `said at ${time(9)} \r\n`, false],
      [time(4), "stdout", "$ ", true],
    ]);
  });
}

test("drops an entry of more than 1 MiB", () => {
  const bytes = Buffer.concat([frame(1, `${time(1)} ${"x".repeat(1 << 20)}\n`), frame(1, `${time(2)} two\n`)]);
  assert.deepEqual(read(createFramedParser(), bytes, 65_536), [[time(2), "stdout", "two\n", false]]);
});

test("an entry without a timestamp is an error message of the daemon", () => {
  assert.throws(() => read(createFramedParser(), frame(2, "Error grabbing logs: unexpected EOF\n"), 100), {
    code: "unknown",
    message: "Error grabbing logs: unexpected EOF",
  });
  assert.throws(() => read(createTerminalParser(), Buffer.from("Error grabbing logs: no\n"), 100), { code: "unknown" });
});

const line = (second: number, text = `line ${second}\n`): LogLine => ({
  time: time(second),
  stream: "stdout",
  text: Buffer.from(text),
  partial: !text.endsWith("\n"),
});

test("drops repeated lines, regardless of the lines between them", () => {
  const isNew = createRepeatFilter();
  const shown = (...seconds: number[]) => seconds.filter((second) => isNew(line(second)));
  assert.deepEqual(shown(1, 2, 3, 4, 5), [1, 2, 3, 4, 5]);
  assert.ok(isNew({ ...line(2), stream: "stderr" }));
  assert.deepEqual(shown(3, 4, 5, 6, 7), [6, 7]);
  assert.deepEqual(shown(6, 7, 8), [8]);
  // From the latest line on.
  assert.deepEqual(shown(8, 9, 9, 10), [9, 10]);
});

test("keeps a different line with the same time", () => {
  const isNew = createRepeatFilter();
  const shown = (...texts: string[]) => texts.filter((text) => isNew(line(1, text)));
  assert.deepEqual(shown("a\n", "b\n", "a\n", "b\n", "c\n"), ["a\n", "b\n", "c\n"]);
});

test("keeps all parts of a long line, which share their time, once", () => {
  const isNew = createRepeatFilter();
  const count = (...seconds: number[]) => seconds.map((second) => isNew(line(second, "part")) && second).filter(Number);
  assert.deepEqual(count(1, 2, 2, 2, 3, 4, 4), [1, 2, 2, 2, 3, 4, 4]);
  // Repeated from the second line on; two more parts of the fourth have arrived meanwhile.
  assert.deepEqual(count(2, 2, 2, 3, 4, 4, 4, 4, 5), [4, 4, 5]);
  const long = (...texts: string[]) => texts.filter((text) => isNew(line(6, text)));
  assert.deepEqual(long("x", "x", "end\n"), ["x", "x", "end\n"]);
  assert.deepEqual(long("x", "x", "end\n"), []);
});

test("drops no lines when the clock is set back", () => {
  const isNew = createRepeatFilter();
  const shown = [10, 11, 5, 6, 7, 12].filter((second) => isNew(line(second)));
  assert.deepEqual(shown, [10, 11, 5, 6, 7, 12]);
});
