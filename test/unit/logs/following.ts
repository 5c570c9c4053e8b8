import assert from "node:assert/strict";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { LogHost } from "../../../src/logs/log-file.ts";
import { createLogReader } from "../../../src/logs/reader.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { type Disk, collector, plain } from "./disk.ts";

const log = silentLog();
/** Timeout for operations on real files on a busy machine, milliseconds. */
const patienceMs = 20_000;
export const line = (text: string) => `2026-01-01T00:00:01Z stdout F ${text}\n`;

/** Yields turns, and real time with every fiftieth, until the condition holds. */
export async function turns(clock: FakeClock, isSo: () => boolean, ms = 1000): Promise<void> {
  const until = performance.now() + patienceMs;
  for (let turn = 0; !isSo() && performance.now() < until; turn++) await clock.advance(turn % 50 === 49 ? ms : 0);
}

export function following(on: Disk, host: LogHost = on.host) {
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
  /** Advances time until the text has arrived; files are read by threads, so a turn is not enough. */
  const until = async (expected: string) => {
    await turns(clock, () => text() === expected);
    assert.equal(text(), expected);
  };
  return { clock, stop, text, done, until, asked: () => asked, set: (next: boolean | CodedError) => (state = next) };
}

/** Advances time until the reader has ended. */
export async function ended({ clock, done }: ReturnType<typeof following>): Promise<void> {
  const state = { over: false };
  const noted = done.finally(() => (state.over = true));
  noted.catch(() => {});
  await turns(clock, () => state.over);
  assert.ok(state.over, "still reading");
  await noted;
}

/** A host whose target a test can take away: open files are lost, and all calls fail until it is back, including those in
 *  flight. */
export function losable({ host }: Disk) {
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
