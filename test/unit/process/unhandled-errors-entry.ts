// A process of two pieces of work, `a` and `b`, in the first of which something goes wrong: node unhandled-errors-entry.ts FAULT. What comes of
// it is printed, a line each; it ends by itself after a while.
import { spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { PassThrough } from "node:stream";
import { systemClock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import { createUnhandledErrorHandler } from "../../../src/process/unhandled-errors.ts";

const [fault = "none"] = process.argv.slice(2);
const say = (line: string) => void process.stdout.write(`${line}\n`);
const clock = systemClock();
/** Timers of minutes are over in a moment. */
const hasty = { ...clock, after: (ms: number, fn: () => void) => clock.after(ms / 600, fn) };
const log = silentLog();
const unhandledErrors = createUnhandledErrorHandler({ clock: hasty, log, exit: () => process.exit(1) });
const stop = new AbortController();

const faults: Readonly<Record<string, () => void>> = {
  "an error event": () => void new EventEmitter().emit("error", new Error("nobody listens")),
  "a write after the end": () => {
    const stream = new PassThrough();
    stream.end();
    stream.write("x");
  },
  "a refused connection": () => void connect(1, "127.0.0.1"),
  "a closed pipe": () => void spawn("true").stdin.write("x".repeat(1 << 20)),
  "a rejected promise": () => void Promise.reject(new Error("nobody awaits")),
  "a timer": () => void clock.after(1, () => void JSON.parse("{")),
  "a connection handler": () => {
    const server = createServer(() => void JSON.parse("{")).listen(0, "127.0.0.1", () => {
      connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => undefined);
    });
  },
  "an error in work that does not stop": () => void clock.after(1, () => void JSON.parse("{")),
  "an error after the end of the work": () => void clock.after(60, () => void JSON.parse("{")),
  "an assertion failure in Node.js": () => void clock.after(1, () => raise("ERR_INTERNAL_ASSERTION")),
  "a failed memory allocation": () =>
    void clock.after(1, () => {
      throw new RangeError("Array buffer allocation failed");
    }),
  "endless errors": () => void setInterval(() => void JSON.parse("{"), 1),
};

function raise(code: string): never {
  throw Object.assign(new Error("this is a bug in Node.js"), { code });
}

const work = (name: string, isAtFault: boolean) => async (signal: AbortSignal) => {
  say(`${name} begins`);
  if (isAtFault) clock.after(20, faults[fault] ?? (() => undefined));
  if (isAtFault && fault === "an error after the end of the work") return clock.sleep(40);
  await onAbort(signal);
  if (isAtFault && fault === "an error in work that does not stop") await new Promise(() => undefined);
};

const ended = (name: string, isAtFault: boolean) =>
  unhandledErrors.run(name, work(name, isAtFault), stop.signal).then(
    () => say(`${name} ends`),
    (error: unknown) => say(`${name} fails: ${messageOf(error)}`),
  );

if (fault === "an error outside all nodes") clock.after(20, () => void JSON.parse("{"));
const both = [ended("a", true), ended("b", false)];
await clock.sleep(500);
stop.abort();
await Promise.all(both);
say("done");
process.exit(0);
