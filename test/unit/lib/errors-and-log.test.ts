import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  abortError,
  CodedError,
  codeOf,
  codeOfErrno,
  type ErrorCode,
  hasCode,
  messageOf,
  throwIfAborted,
  ignoreCode,
  ignoreNotFound,
} from "../../../src/lib/errors.ts";
import { createLineLimit } from "../../../src/lib/line-limit.ts";
import { createLogger, createTextLogger } from "../../../src/lib/log.ts";
import { createVerbosity } from "../../../src/lib/verbosity.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";

test("hasCode distinguishes codes; errors without a code count as unknown", () => {
  const error = new CodedError("not_found", "gone", { cause: new Error("ENOENT") });
  assert.equal(codeOf(error), "not_found");
  assert.equal(codeOf(new Error("x")), "unknown");
  assert.equal(hasCode(error, "conflict", "not_found"), true);
  assert.equal(hasCode(new Error("not_found"), "not_found"), false);
  assert.equal(messageOf("text"), "text");
  assert.deepEqual(
    ["ENOENT", "EEXIST", "EACCES", "ECONNREFUSED", "ETIMEDOUT", "ABORT_ERR", undefined].map(codeOfErrno),
    ["not_found", "already_exists", "permission_denied", "unavailable", "deadline_exceeded", "cancelled", "unknown"],
  );
});

test("throwIfAborted throws the signal's reason if it has a code, otherwise an error with the code cancelled", () => {
  const deadline = new CodedError("deadline_exceeded", "late");
  assert.equal(abortError(AbortSignal.abort(deadline)), deadline);
  assert.throws(() => throwIfAborted(AbortSignal.abort()), { code: "cancelled" });
  throwIfAborted(undefined);
  throwIfAborted(never);
});

test("redacts secrets, and logs an error with its chain of causes", () => {
  const lines: string[] = [];
  const log = createLogger(5, { write: (line: string) => void lines.push(line) });
  const error = new CodedError("unavailable", "outer", { cause: new CodedError("not_found", "inner") });
  log
    .child({ pod: "a/b" })
    .error({ err: error, token: "s3cret-a", request: { password: "s3cret-b", auth: { token: "s3cret-c" } } }, "failed");
  const [line = ""] = lines;
  assert.equal(line.includes("s3cret"), false);
  const { err, pod } = JSON.parse(line) as { err: unknown; pod: string };
  assert.equal(pod, "a/b");
  assert.deepEqual(err, { message: "outer", code: "unavailable", cause: { message: "inner", code: "not_found" } });
});

test("rate-limits repeated messages per node, logs how many were dropped, and writes all other lines", async () => {
  const lines: string[] = [];
  const clock = fakeClock();
  const root = createLogger(5, { write: (line: string) => void lines.push(line) }, () => createLineLimit(clock));
  const [a, b] = [root.child({ node: "a" }), root.child({ node: "b" }).child({ pod: "p" })];
  for (let n = 0; n < 1_000; n++) a.warn({ n }, "the target says so");
  assert.equal(lines.length, 200);
  for (let n = 0; n < 10; n++) b.warn({ n }, "the target says so");
  a.warn({}, "another sentence");
  for (let n = 0; n < 1_000; n++) a.trace({ n }, "asked for");
  assert.equal(lines.length, 1_211);
  await clock.advance(1_000);
  a.warn({ n: 1_000 }, "the target says so");
  const { n, leftOut } = JSON.parse(lines.at(-1) ?? "") as { readonly n: number; readonly leftOut: number };
  assert.deepEqual([n, leftOut], [1_000, 800]);
});

test("truncates long texts and lists in a log line, including those in errors and their causes", () => {
  const lines: string[] = [];
  const log = createLogger(0, { write: (line: string) => void lines.push(line) });
  const long = "x".repeat(1 << 20);
  const err = new CodedError("unknown", long, { cause: new Error(long) });
  log.warn(
    { err, why: long, said: [long, ...Array.from({ length: 10_000 }, () => "y")], deep: { one: { two: long } } },
    "cut",
  );
  assert.ok((lines[0]?.length ?? 0) < 40_000, `${lines[0]?.length} characters`);
  assert.match(lines[0] ?? "", /xxx… \(1044480 more characters\)/);
  assert.match(lines[0] ?? "", /… \(9801 more\)/);
});

test("keeps running when standard error is a file on a full disk", async () => {
  const log = join(import.meta.dirname, "../../../src/lib/log.ts");
  const code = `
    const { createProcessLog } = await import(${JSON.stringify(log)});
    const clock = { monotonic: () => performance.now() };
    const { log } = createProcessLog({ format: "json", verbosity: 0, vmodule: [] }, clock);
    for (let n = 0; n < 100; n++) log.info({ n }, "said to nobody");
    setTimeout(() => process.exit(0), 100);`;
  const full = openSync("/dev/full", "w");
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "inherit", full] });
  closeSync(full);
  const [status] = (await once(child, "exit")) as [number];
  assert.equal(status, 0);
});

test("the verbosity selects the log level", () => {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  createLogger(2, destination).debug({}, "hidden");
  createLogger(3, destination).debug({}, "shown");
  createLogger(4, destination).trace({}, "hidden");
  createLogger(5, destination).trace({}, "traced");
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { msg: string }).msg),
    ["shown", "traced"],
  );
});

test("changes verbosity at run time, even for child loggers; does not format suppressed lines", () => {
  const lines: string[] = [];
  const verbosity = createVerbosity(0);
  const log = createLogger(verbosity, { write: (line: string) => void lines.push(line) }).child({ node: "a" });
  const untouched = {
    get pod(): string {
      throw new Error("its fields were read");
    },
  };
  log.trace(untouched, "hidden");
  verbosity.set(5);
  log.trace({}, "traced");
  verbosity.set(2);
  log.debug(untouched, "hidden");
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { msg: string }).msg),
    ["traced"],
  );
});

test("vmodule sets the verbosity of matching files; the first match wins", () => {
  const shown = (files: Record<string, number>, file: string): number => {
    const own = Object.entries(files).map(([filePattern, level]) => ({ filePattern, verbosity: level }));
    const verbosity = createVerbosity(1, own);
    return [5, 3, 1].find((level) => verbosity.shows(level, file)) ?? 0;
  };
  assert.equal(shown({ "pod-*": 5 }, "pod-worker.ts"), 5);
  assert.equal(shown({ "pod-*": 5 }, "a-pod-worker.ts"), 1);
  assert.equal(shown({ "pod-worker": 3, "*": 5 }, "pod-worker.ts"), 3);
  assert.equal(shown({ "ple?": 5, "[a-c]leg": 3 }, "pleg.ts"), 5);
  assert.equal(shown({ "[a-c]leg": 3 }, "bleg.ts"), 3);
  assert.equal(shown({ "a.c": 5 }, "abc.ts"), 1);
  assert.equal(shown({ "[z-a]": 5, "[": 5 }, "z.ts"), 1);
  const lines: string[] = [];
  const here = createVerbosity(0, [{ filePattern: "errors-and-*", verbosity: 5 }]);
  createTextLogger(here, { write: (line: string) => void lines.push(line) }, { pid: 7 }).trace({}, "traced");
  assert.match(lines.join(), / errors-and-log\.test\.ts:\d+\] "traced"\n$/);
});

test("ignoreNotFound returns undefined for not_found and throws other errors", async () => {
  const failing = (code: ErrorCode) => Promise.reject(new CodedError(code, "it is so"));
  assert.equal(await ignoreNotFound(Promise.resolve(0)), 0);
  assert.equal(await ignoreNotFound(failing("not_found")), undefined);
  assert.equal(await ignoreCode(failing("conflict"), "not_found", "conflict"), undefined);
  await assert.rejects(ignoreNotFound(failing("conflict")), { code: "conflict" });
  await assert.rejects(ignoreNotFound(Promise.reject(new Error("not_found"))), /not_found/);
});
