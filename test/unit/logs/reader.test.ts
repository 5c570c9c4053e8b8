import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, open, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import type { LogOptions } from "../../../src/pipeline.ts";
import { createLogReader } from "../../../src/logs/reader.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Disk, collector, disk, plain } from "./disk.ts";

const log = silentLog();

function readerOn({ root, host }: Disk) {
  return createLogReader({
    host,
    clock: fakeClock(),
    log,
    roots: [root],
    runtime: {},
    isRunning: () => Promise.resolve(false),
  });
}

async function read(on: Disk, options: Partial<LogOptions> = {}, logPath = on.log): Promise<string> {
  const { out, text } = collector();
  await readerOn(on).read({ containerId: "id", logPath }, { ...plain, ...options }, out, never);
  assert.equal(on.openFiles(), 0);
  return text();
}

const cri = [
  "2026-01-01T00:00:01.1Z stdout F one",
  "2026-01-01T00:00:02.123456789Z stderr F two",
  "2026-01-01T00:00:03Z stdout P thr",
  "2026-01-01T00:00:03.5Z stdout F ee",
  "2026-01-01T00:00:04+00:00 stdout F:more four",
  "",
].join("\n");

test("reads CRI lines with nine-digit timestamps, and joins partial lines", async () => {
  await using on = await disk();
  await writeFile(on.log, cri);
  assert.equal(await read(on), "one\ntwo\nthree\nfour\n");
  assert.equal(
    await read(on, { timestamps: true }),
    [
      "2026-01-01T00:00:01.100000000Z one",
      "2026-01-01T00:00:02.123456789Z two",
      "2026-01-01T00:00:03.000000000Z three",
      "2026-01-01T00:00:04.000000000Z four",
      "",
    ].join("\n"),
  );
});

test("reads the lines of Docker's JSON log", async () => {
  await using on = await disk();
  const lines = [
    { log: "grüße\n", stream: "stdout", time: "2026-01-01T00:00:01.5Z" },
    { log: "half ", stream: "stderr", time: "2026-01-01T00:00:02Z" },
    { log: "line\n", stream: "stderr", time: "2026-01-01T00:00:02Z" },
  ];
  await writeFile(on.log, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  assert.equal(await read(on), "grüße\nhalf line\n");
  assert.equal(await read(on, { stream: "Stderr", timestamps: true }), "2026-01-01T00:00:02.000000000Z half line\n");
});

test("since omits older lines, with millisecond precision", async () => {
  await using on = await disk();
  await writeFile(on.log, cri);
  assert.equal(await read(on, { since: Date.UTC(2026, 0, 1, 0, 0, 2, 123) }), "two\nthree\nfour\n");
  assert.equal(await read(on, { since: Date.UTC(2026, 0, 1, 0, 0, 2, 124) }), "three\nfour\n");
});

test("selects lines of stdout or stderr", async () => {
  await using on = await disk();
  await writeFile(on.log, cri);
  assert.equal(await read(on, { stream: "Stderr" }), "two\n");
  assert.equal(await read(on, { stream: "Stdout" }), "one\nthree\nfour\n");
});

test("limitBytes is a hard limit that includes timestamps", async () => {
  await using on = await disk();
  await writeFile(on.log, cri);
  assert.equal(await read(on, { limitBytes: 6 }), "one\ntw");
  assert.equal(await read(on, { limitBytes: 10, timestamps: true }), "2026-01-01");
});

test("tailLines counts lines from the end of the file, across blocks", async () => {
  await using on = await disk();
  await writeFile(on.log, cri);
  assert.equal(await read(on, { tailLines: 0 }), "");
  assert.equal(await read(on, { tailLines: 1 }), "four\n");
  assert.equal(await read(on, { tailLines: 2 }), "ee\nfour\n");
  assert.equal(await read(on, { tailLines: 99 }), "one\ntwo\nthree\nfour\n");
  const many = Array.from({ length: 20_000 }, (_, index) => `2026-01-01T00:00:01Z stdout F line ${index}\n`);
  await writeFile(on.log, many.join(""));
  const expected = Array.from({ length: 7_000 }, (_, index) => `line ${index + 13_000}\n`).join("");
  assert.equal(await read(on, { tailLines: 7_000 }), expected);
});

test("returns a last line without a newline unchanged, and skips lines that do not parse", async () => {
  await using on = await disk();
  await writeFile(on.log, "2026-01-01T00:00:01Z stdout F one\nnonsense\n2026-01-01T00:00:02Z stdout F tw");
  assert.equal(await read(on), "one\ntw");
});

test("fails on an unknown format, and returns nothing for an empty file", async () => {
  await using on = await disk();
  await writeFile(on.log, "nonsense\n");
  await assert.rejects(read(on), /unsupported log format: "nonsense\\n"/);
  await writeFile(on.log, "");
  assert.equal(await read(on), "");
});

test("skips a line of more than 1 MiB and reads the next", async () => {
  await using on = await disk();
  await writeFile(
    on.log,
    `2026-01-01T00:00:01Z stdout F one\n${"x".repeat(3_000_000)}\n2026-01-01T00:00:02Z stdout F two\n`,
  );
  assert.equal(await read(on), "one\ntwo\n");
});

test("reports a missing file with the kubelet's message", async () => {
  await using on = await disk();
  await assert.rejects(read(on), {
    code: "not_found",
    message: /^failed to try resolving symlinks in path ".*0\.log": /,
  });
});

test("refuses links to anything except this container's log, and does not open a FIFO", async () => {
  await using on = await disk();
  await symlink("/etc/passwd", on.log);
  await assert.rejects(read(on), { code: "permission_denied" });
  await assert.rejects(read(on, {}, join(on.directory, "../../../../../../etc/passwd")), { code: "permission_denied" });
  const other = join(on.root, "ns_other_uid", "c");
  await mkdir(other, { recursive: true });
  await writeFile(join(other, "0.log"), cri);
  await symlink(join(other, "0.log"), join(on.directory, "1.log"));
  await assert.rejects(read(on, {}, join(on.directory, "1.log")), { code: "permission_denied" });
  await symlink(other, join(on.root, "ns_pod_uid", "d"));
  await assert.rejects(read(on, {}, join(on.root, "ns_pod_uid", "d", "0.log")), { code: "permission_denied" });
  assert.equal(await read(on, { tailLines: 1 }, join(other, "0.log")), "four\n");
  execFileSync("mkfifo", [join(on.directory, "2.log")]);
  await assert.rejects(read(on, {}, join(on.directory, "2.log")), { code: "failed_precondition" });
});

test("applies back-pressure if the client is slow, and stops reading when it leaves", async () => {
  await using on = await disk();
  const line = `2026-01-01T00:00:01Z stdout F ${"x".repeat(1000)}\n`;
  await writeFile(on.log, line.repeat(10_000));
  const begun = Promise.withResolvers<void>();
  let written = 0;
  const stuck = new Writable({
    write(part: Buffer) {
      written += part.length;
      begun.resolve();
    },
  });
  const reading = readerOn(on).read({ containerId: "id", logPath: on.log }, plain, stuck, never);
  await begun.promise;
  for (let more = 0; more < 200; more++) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(written + stuck.writableLength <= 256 * 1024);
  stuck.destroy();
  await assert.rejects(reading, { code: "cancelled" });
  assert.equal(on.openFiles(), 0);
});

test("reads a large log in bounded memory", async () => {
  await using on = await disk();
  const block = `2026-01-01T00:00:01.123456789Z stdout F ${"x".repeat(470)}\n`.repeat(4096);
  const file = await open(on.log, "w");
  for (let written = 0; written < 128 * 1024 * 1024; written += block.length) await file.write(block);
  await file.close();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  let [most, total] = [0, 0];
  const out = new Writable({
    write(part: Buffer, _encoding, done) {
      total += part.length;
      const now = process.memoryUsage();
      most = Math.max(most, now.heapUsed - heapUsed + now.arrayBuffers - arrayBuffers);
      setImmediate(done);
    },
  });
  await readerOn(on).read({ containerId: "id", logPath: on.log }, plain, out, never);
  assert.ok(total > 100 * 1024 * 1024);
  assert.ok(most < 96 * 1024 * 1024, `grew by ${most}`);
});
