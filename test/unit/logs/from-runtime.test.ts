import assert from "node:assert/strict";
import { symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Writable } from "node:stream";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { LogOptions } from "../../../src/pipeline.ts";
import type { LogHost } from "../../../src/logs/log-file.ts";
import { createLogReader } from "../../../src/logs/reader.ts";
import type { LogLine, Runtime, RuntimeLogOptions } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Disk, collector, disk, plain } from "./disk.ts";

const log = silentLog();

const lines: readonly LogLine[] = [
  { time: "2026-01-01T00:00:01.100000000Z", stream: "stdout", text: Buffer.from("one\n"), partial: false },
  { time: "2026-01-01T00:00:02.123456789Z", stream: "stderr", text: Buffer.from("two\n"), partial: false },
  { time: "2026-01-01T00:00:03.000000000Z", stream: "stdout", text: Buffer.from("thr"), partial: true },
  { time: "2026-01-01T00:00:03.000000000Z", stream: "stdout", text: Buffer.from("ee\n"), partial: false },
];

/** A runtime that returns these lines and records its calls. */
function giving(given: readonly (LogLine | CodedError)[]) {
  const asked: { id: string; options: RuntimeLogOptions }[] = [];
  let closed = 0;
  const runtime: Pick<Runtime, "logs"> = {
    async *logs(id, options) {
      asked.push({ id, options });
      try {
        for (const line of given) {
          if (line instanceof CodedError) throw line;
          yield line;
        }
      } finally {
        closed++;
      }
    },
  };
  return { runtime, asked, closed: () => closed };
}

function refusing(on: Disk, code: "permission_denied" | "not_found" | "unavailable"): LogHost {
  const refuse = () => Promise.reject(new CodedError(code, "cannot be read"));
  return { fs: { ...on.host.fs, open: refuse } };
}

function readerOn(on: Disk, host: LogHost, runtime: Pick<Runtime, "logs" | "logRoots">) {
  return createLogReader({
    host,
    clock: fakeClock(),
    log,
    roots: [on.root],
    runtime,
    isRunning: () => Promise.resolve(false),
  });
}

async function read(on: Disk, options: Partial<LogOptions>, given = giving(lines)): Promise<string> {
  const { out, text } = collector();
  const reader = readerOn(on, refusing(on, "permission_denied"), given.runtime);
  await reader.read({ containerId: "id", logPath: on.log }, { ...plain, ...options }, out, never);
  return text();
}

test("if the file is unreadable, reads the log from the runtime, with the requested limits", async () => {
  await using on = await disk();
  await writeFile(on.log, "");
  assert.equal(await read(on, {}), "one\ntwo\nthree\n");
  assert.equal(await read(on, { stream: "Stderr" }), "two\n");
  assert.equal(await read(on, { limitBytes: 6 }), "one\ntw");
  assert.equal(await read(on, { since: Date.parse("2026-01-01T00:00:02.123Z") }), "two\nthree\n");
  assert.equal(
    await read(on, { timestamps: true }),
    "2026-01-01T00:00:01.100000000Z one\n2026-01-01T00:00:02.123456789Z two\n2026-01-01T00:00:03.000000000Z three\n",
  );
});

test("requests only the needed lines from the runtime, and stops when it has enough", async () => {
  await using on = await disk();
  await writeFile(on.log, "");
  const given = giving(lines);
  assert.equal(await read(on, { follow: true, since: 5, tailLines: 2, limitBytes: 3 }, given), "one");
  assert.deepEqual(
    given.asked.map(({ id, options: { follow, since, tailLines } }) => [id, follow, since, tailLines]),
    [["id", true, 5, 2]],
  );
  assert.equal(given.closed(), 1);
});

test("fails with the runtime's error, or with the file's error if the runtime has no such container", async () => {
  await using on = await disk();
  await writeFile(on.log, "");
  const broken = giving([...lines.slice(0, 1), new CodedError("unavailable", "daemon gone")]);
  await assert.rejects(read(on, {}, broken), { code: "unavailable" });
  const unknown = giving([new CodedError("not_found", "no such container")]);
  await assert.rejects(read(on, {}, unknown), { code: "permission_denied", message: /failed to open log file/ });
});

test("does not read from the runtime if the file is readable or fails for another reason, or the runtime serves no logs", async () => {
  await using on = await disk();
  await writeFile(on.log, "2026-01-01T00:00:01Z stdout F from the file\n");
  const given = giving(lines);
  const source = { containerId: "id", logPath: on.log };
  const { out, text } = collector();
  await readerOn(on, on.host, given.runtime).read(source, plain, out, never);
  assert.equal(text(), "from the file\n");
  const away = readerOn(on, refusing(on, "unavailable"), given.runtime).read(source, plain, out, never);
  await assert.rejects(away, { code: "unavailable" });
  assert.equal(given.asked.length, 0);
  const denied = readerOn(on, refusing(on, "permission_denied"), {}).read(source, plain, out, never);
  await assert.rejects(denied, { code: "permission_denied" });
});

test("applies back-pressure to the runtime if the client is slow, and ends the runtime's stream when the client leaves", async () => {
  await using on = await disk();
  await writeFile(on.log, "");
  const big = { ...lines[0], text: Buffer.alloc(100_000, "x") } as LogLine;
  const given = giving(Array.from({ length: 100 }, () => big));
  const stuck = new Writable({ write: () => undefined });
  const reader = readerOn(on, refusing(on, "permission_denied"), given.runtime);
  const reading = reader.read({ containerId: "id", logPath: on.log }, plain, stuck, never);
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
  assert.ok(stuck.writableLength <= 100_000);
  stuck.destroy();
  await assert.rejects(reading, { code: "cancelled" });
  assert.equal(given.closed(), 1);
});

test("accepts logs in the runtime's own directories, for which it asks the runtime once and only when needed", async () => {
  await using on = await disk();
  await using elsewhere = await disk();
  await writeFile(elsewhere.log, "2026-01-01T00:00:01Z stdout F elsewhere\n");
  await writeFile(on.log, "2026-01-01T00:00:01Z stdout F here\n");
  const link = join(on.directory, "1.log");
  await symlink(elsewhere.log, link);
  let asked = 0;
  const logRoots = () => {
    asked++;
    return Promise.resolve([dirname(dirname(elsewhere.directory))]);
  };
  const reader = readerOn(on, on.host, { logRoots });
  const text = async (logPath: string) => {
    const to = collector();
    await reader.read({ containerId: "ns_pod_uid", logPath }, plain, to.out, never);
    return to.text();
  };
  assert.equal(await text(on.log), "here\n");
  assert.equal(asked, 0);
  assert.equal(await text(link), "elsewhere\n");
  assert.equal(await text(link), "elsewhere\n");
  assert.equal(asked, 1);
  for (const [containerId, roots] of [
    ["another", { logRoots }],
    ["ns_pod_uid", {}],
  ] as const)
    await assert.rejects(
      readerOn(on, on.host, roots).read({ containerId, logPath: link }, plain, collector().out, never),
      { code: "permission_denied" },
      "another container's, or of no directory of the runtime's",
    );
});
