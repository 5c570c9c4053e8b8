import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFile, readFile, rename, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createLogReader } from "../../../src/logs/reader.ts";
import type { LogHost } from "../../../src/logs/file.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { type Disk, collector, disk, plain } from "./disk.ts";

const log = createLogger(0, { write: () => {} });
/** Milliseconds that real files may take on a machine with much else to do. */
const patienceMs = 20_000;
const line = (text: string) => `2026-01-01T00:00:01Z stdout F ${text}\n`;

/** Lets turns pass, and so many milliseconds with every fiftieth, until it is so. */
async function turns(clock: FakeClock, isSo: () => boolean, ms = 1000): Promise<void> {
  const until = performance.now() + patienceMs;
  for (let turn = 0; !isSo() && performance.now() < until; turn++) await clock.advance(turn % 50 === 49 ? ms : 0);
}

function following(on: Disk, host: LogHost = on.host) {
  const clock = fakeClock();
  const stop = new AbortController();
  const { out, text } = collector();
  let state: boolean | CodedError = true;
  let asked = 0;
  const isRunning = () => {
    asked++;
    return state instanceof CodedError ? Promise.reject(state) : Promise.resolve(state);
  };
  const reader = createLogReader({ host, clock, log, roots: [on.root], runtime: {}, isRunning });
  const done = reader.read({ containerId: "id", logPath: on.log }, { ...plain, follow: true }, out, stop.signal);
  done.catch(() => {});
  /** Moves time on until the text is there; the file is read by threads, so a turn alone is not enough. */
  const until = async (expected: string) => {
    await turns(clock, () => text() === expected);
    assert.equal(text(), expected);
  };
  return { clock, stop, text, done, until, asked: () => asked, set: (next: boolean | CodedError) => (state = next) };
}

/** Moves time on until the reading has ended. */
async function ended({ clock, done }: ReturnType<typeof following>): Promise<void> {
  const state = { over: false };
  const noted = done.finally(() => (state.over = true));
  noted.catch(() => {});
  await turns(clock, () => state.over);
  assert.ok(state.over, "still reading");
  await noted;
}

test("shows what is added, line by line, until the container is gone", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, `${line("two")}2026-01-01T00:00:01Z stdout F thr`);
  await reading.until("one\ntwo\n");
  await appendFile(on.log, "ee\n");
  await reading.until("one\ntwo\nthree\n");
  reading.set(false);
  await appendFile(on.log, line("last words"));
  await ended(reading);
  assert.equal(reading.text(), "one\ntwo\nthree\nlast words\n");
  assert.equal(on.openFiles(), 0);
});

test("survives rotation, losing nothing of the old file", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await rename(on.log, `${on.log}.20260101-000000`);
  await appendFile(`${on.log}.20260101-000000`, line("two"));
  await writeFile(on.log, line("three"));
  await reading.until("one\ntwo\nthree\n");
  await rename(on.log, `${on.log}.20260101-000001`);
  await writeFile(on.log, line("four"));
  await reading.until("one\ntwo\nthree\nfour\n");
  assert.ok(on.openFiles() <= 2, `${on.openFiles()} files open`);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

/** Does to a rotated log what rotation does later; it keeps its time. */
async function compress(path: string): Promise<void> {
  const { atime, mtime } = await stat(path);
  await writeFile(`${path}.gz`, gzipSync(await readFile(path)));
  await utimes(`${path}.gz`, atime, mtime);
  await rm(path);
}

test("several rotations behind, it reads each file in turn, compressed ones too", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await rename(on.log, rotated(0));
  await writeFile(rotated(1), line("three"));
  await writeFile(rotated(2), line("four"));
  for (const second of [1, 2]) await compress(rotated(second));
  await writeFile(on.log, line("five"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("the file that it reads is told by its age once it has been compressed, and by its name if it had one", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await utimes(on.log, 1000, 1000);
  await rename(on.log, rotated(3));
  const others = { [rotated(2)]: ["old", 900], [rotated(4)]: ["three", 1100], [rotated(5)]: ["four", 1100] } as const;
  for (const [path, [text, seconds]] of Object.entries(others)) {
    await writeFile(path, line(text));
    await utimes(path, seconds, seconds);
  }
  for (const second of [2, 3, 4, 5]) await compress(rotated(second));
  await writeFile(on.log, line("five"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("a compressed file that is no gzip fails the reading", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await rename(on.log, `${on.log}.20260101-000000`);
  await writeFile(`${on.log}.20260101-000001.gz`, line("no gzip"));
  await writeFile(on.log, line("two"));
  await assert.rejects(ended(reading), /cannot decompress: incorrect header check/);
  assert.equal(on.openFiles(), 0);
});

test("a target that is lost while a compressed file is read: it goes on in that file", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  await rename(on.log, rotated(0));
  const texts = Array.from({ length: 40_000 }, (_, at) => randomBytes(20).toString("hex") + at);
  await writeFile(rotated(1), texts.map(line).join(""));
  await compress(rotated(1));
  await writeFile(on.log, line("two"));
  const parts = () => reading.text().split("\n").length;
  await turns(reading.clock, () => parts() > 1_000);
  target.lose();
  for (let turn = 0; turn < 100; turn += 1) await reading.clock.advance(0);
  target.find();
  await reading.until(`one\n${texts.join("\n")}\ntwo\n`);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("several rotations behind in a log that Docker rotates, it reads each file in turn", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await rename(on.log, `${on.log}.2`);
  await writeFile(`${on.log}.1`, line("three"));
  await writeFile(on.log, line("four"));
  await reading.until("one\ntwo\nthree\nfour\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("a file that rotation moves while it is opened is not taken for another", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  let moved = false;
  const open: LogHost["fs"]["open"] = async (path, options) => {
    if (path === `${on.log}.1` && !moved) {
      moved = true;
      await rename(on.log, `${on.log}.3`);
      for (const [from, to] of [
        [2, 4],
        [1, 2],
      ] as const)
        await rename(`${on.log}.${from}`, `${on.log}.${to}`);
      await rename(`${on.log}.3`, `${on.log}.1`);
      await rename(`${on.log}.4`, `${on.log}.3`);
      await writeFile(on.log, line("four"));
    }
    return on.host.fs.open(path, options);
  };
  const reading = following(on, { ...on.host, fs: { ...on.host.fs, open } });
  await reading.until("one\n");
  await rename(on.log, `${on.log}.2`);
  await writeFile(`${on.log}.1`, line("two"));
  await writeFile(on.log, line("three"));
  await reading.until("one\ntwo\nthree\nfour\n");
  assert.ok(moved);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("stays with the old file until the new one has lines and the old one is at rest", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  const old = `${on.log}.20260101-000000`;
  await rename(on.log, old);
  await writeFile(on.log, "");
  await appendFile(old, line("two"));
  await reading.until("one\ntwo\n");
  await reading.clock.advance(10_000);
  await appendFile(old, line("three"));
  await reading.until("one\ntwo\nthree\n");
  await writeFile(on.log, line("five"));
  await appendFile(old, line("four"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.stop.abort();
  await assert.rejects(ended(reading));
  assert.equal(on.openFiles(), 0);
});

test("a file that was cut short is read from its start", async () => {
  await using on = await disk();
  await writeFile(on.log, line("a long first line"));
  const reading = following(on);
  await reading.until("a long first line\n");
  await truncate(on.log, 0);
  await appendFile(on.log, line("b"));
  await reading.until("a long first line\nb\n");
  reading.stop.abort();
  await assert.rejects(ended(reading));
  assert.equal(on.openFiles(), 0);
});

test("a runtime that is away does not end it, a container that is gone does", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  reading.set(new CodedError("unavailable", "no socket"));
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await reading.until("one\ntwo\n");
  reading.set(new CodedError("not_found", "no such container"));
  await ended(reading);
});

/** A host whose target a test takes away: what was open is gone for good, whatever is asked fails until it is back, and so does
 *  what was asked just before. */
function losable({ host }: Disk) {
  let life = 0;
  let lost = false;
  const within = (born: number) => {
    if (lost || born !== life) throw new CodedError("unavailable", "connection closed");
  };
  const open: LogHost["fs"]["open"] = async (path, options) => {
    within(life);
    const born = life;
    const file = await host.fs.open(path, options);
    const answered = async <T>(asked: () => Promise<T>): Promise<T> => {
      within(born);
      const answer = await asked();
      within(born);
      return answer;
    };
    const read: typeof file.read = (...args) => answered(() => file.read(...args));
    const stat: typeof file.stat = (...args) => answered(() => file.stat(...args));
    return { ...file, read, stat };
  };
  const lstat: LogHost["fs"]["lstat"] = async (...args) => (within(life), host.fs.lstat(...args));
  return {
    host: { ...host, fs: { ...host.fs, open, lstat } },
    lose: () => (lost = true),
    find() {
      lost = false;
      life += 1;
    },
  };
}

test("after the loss of its target it goes on at the byte where it stopped", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  await appendFile(on.log, `${line("two")}2026-01-01T00:00:01Z stdout F thr`);
  await reading.until("one\ntwo\n");
  target.lose();
  await appendFile(on.log, `ee\n${line("four")}`);
  await reading.clock.advance(60_000);
  assert.equal(reading.text(), "one\ntwo\n");
  target.find();
  await reading.until("one\ntwo\nthree\nfour\n");
  reading.set(false);
  await appendFile(on.log, line("last words"));
  await ended(reading);
  assert.equal(reading.text(), "one\ntwo\nthree\nfour\nlast words\n");
  assert.equal(on.openFiles(), 0);
});

test("what was rotated away while the target was lost is read before the new file", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  target.lose();
  await appendFile(on.log, line("two"));
  await rename(on.log, `${on.log}.20260101-000000`);
  await writeFile(on.log, line("three"));
  target.find();
  await reading.until("one\ntwo\nthree\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("a log that is gone when its target is back has come to its end", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  target.lose();
  await rm(on.log);
  await reading.clock.advance(10_000);
  target.find();
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("any other failure of the runtime fails the reading", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  reading.set(new CodedError("permission_denied", "no"));
  await assert.rejects(ended(reading), { code: "permission_denied" });
});

test("with a host that watches nothing is read or asked without need, and a change shows at once", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  let tell = () => {};
  let watched = "";
  const watch: LogHost["watch"] = async function* (path, signal) {
    watched = path;
    for (;;) {
      await new Promise<void>((resolve) => {
        tell = resolve;
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      if (signal.aborted) return;
      yield `${path}/0.log`;
    }
  };
  const reading = following(on, { ...on.host, watch });
  await reading.until("one\n");
  for (let change = 0; change < 5; change++) {
    await appendFile(on.log, line(`${change}`));
    tell();
    const isShown = () => reading.text().endsWith(`${change}\n`);
    await turns(reading.clock, isShown, 0);
    assert.ok(isShown(), "not without time passing");
  }
  assert.equal(watched, on.directory);
  assert.ok(reading.asked() <= 2, `asked ${reading.asked()} times`);
  reading.stop.abort();
  await assert.rejects(ended(reading));
});

test("follows Docker's rotation: the file gets a number, a new one takes its name, parts of lines are joined", async () => {
  await using on = await disk();
  const entry = (text: string) =>
    `${JSON.stringify({ log: text, stream: "stdout", time: "2026-01-01T00:00:01.5Z" })}\n`;
  await writeFile(on.log, entry("one\n") + entry("two and "));
  const reading = following(on);
  await reading.until("one\ntwo and ");
  await rename(on.log, `${on.log}.1`);
  await appendFile(`${on.log}.1`, entry("a half\n"));
  await writeFile(on.log, entry("three\n"));
  await reading.until("one\ntwo and a half\nthree\n");
  await rename(`${on.log}.1`, `${on.log}.2`);
  await rename(on.log, `${on.log}.1`);
  await writeFile(on.log, entry("four\n"));
  await reading.until("one\ntwo and a half\nthree\nfour\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});
