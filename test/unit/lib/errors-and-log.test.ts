import assert from "node:assert/strict";
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
  unlessCode,
  unlessGone,
} from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";

test("codes are told apart, everything else is unknown", () => {
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

test("an aborted signal throws its own coded reason, or cancelled", () => {
  const deadline = new CodedError("deadline_exceeded", "late");
  assert.equal(abortError(AbortSignal.abort(deadline)), deadline);
  assert.throws(() => throwIfAborted(AbortSignal.abort()), { code: "cancelled" });
  throwIfAborted(undefined);
  throwIfAborted(new AbortController().signal);
});

test("secrets do not reach the log, and errors show their chain of causes", () => {
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

test("verbosity chooses the level", () => {
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

test("what is gone is undefined, other failures are thrown", async () => {
  const failing = (code: ErrorCode) => Promise.reject(new CodedError(code, "it is so"));
  assert.equal(await unlessGone(Promise.resolve(0)), 0);
  assert.equal(await unlessGone(failing("not_found")), undefined);
  assert.equal(await unlessCode(failing("conflict"), "not_found", "conflict"), undefined);
  await assert.rejects(unlessGone(failing("conflict")), { code: "conflict" });
  await assert.rejects(unlessGone(Promise.reject(new Error("not_found"))), /not_found/);
});
