import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryBounds } from "../../../src/eviction/memory-bounds.ts";
import { createMemoryNotifier } from "../../../src/eviction/memory-notifier.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type Spawned, type SpokenProcess, spawning, spokenProcess } from "../../fakes/process.ts";

/** Lines sent to a listener since the last call. */
const asked = ({ stdin }: SpokenProcess) => String(stdin.read() ?? "");

async function listening(...given: readonly Spawned[]) {
  const clock = fakeClock();
  const stop = new AbortController();
  const said: string[] = [];
  const log = createLogger(0, { write: (text: string) => said.push(text) });
  const notifier = createMemoryNotifier({ host: spawning(...given), waitForTarget: undefined, clock, log });
  const done = notifier.run(stop.signal);
  await clock.advance(0);
  /** True if a bound was crossed since the last call. */
  const isNews = async () => {
    const over = new AbortController();
    let news = false;
    const wait = notifier.crossed(over.signal).then(() => (news = !over.signal.aborted));
    await clock.advance(0);
    over.abort();
    await wait;
    return news;
  };
  return { clock, stop, done, said, notifier, isNews };
}

const bound = (name: string, bytes: number) => ({ name, directory: "/sys/fs/cgroup/memory/kubepods", bytes });

test("computes the usage bound as capacity minus threshold plus inactive files", () => {
  const thresholds = [
    { signal: "memory.available", value: "10%", graceMs: 0 },
    { signal: "memory.available", value: "300", graceMs: 1000 },
    { signal: "allocatableMemory.available", value: "100", graceMs: 0 },
    { signal: "nodefs.available", value: "100", graceMs: 0 },
  ] as const;
  const machine = { cgroup: "", usage: 500, workingSet: 450, capacity: 1000 };
  const pods = { cgroup: "/kubepods", usage: 200, workingSet: 200, capacity: 600 };
  const all = memoryBounds(
    thresholds,
    new Map([
      ["memory.available", machine],
      ["allocatableMemory.available", pods],
    ]),
  );
  assert.deepEqual(all, [
    { name: "hard memory", directory: "/sys/fs/cgroup/memory", bytes: 950 },
    { name: "soft memory", directory: "/sys/fs/cgroup/memory", bytes: 750 },
    { name: "hard allocatable memory", directory: "/sys/fs/cgroup/memory/kubepods", bytes: 500 },
  ]);
  assert.equal(memoryBounds(thresholds, new Map([["memory.available", machine]])).length, 2);
});

test("reports that the threshold was crossed once, even if nothing was waiting for it", async () => {
  const kernel = spokenProcess();
  const { stop, done, said, isNews } = await listening(kernel);
  assert.equal(await isNews(), false);
  for (const letter of "crossed hard allocatable memory\ncrossed hard memory\n") kernel.stdout.write(letter);
  assert.equal(await isNews(), true);
  assert.equal(await isNews(), false);
  assert.equal(said.length, 2);
  assert.match(said[0] ?? "", /eviction manager: hard allocatable memory eviction threshold crossed/);
  stop.abort();
  await done;
  assert.ok(kernel.stdin.writableEnded, "the listener's input is closed");
});

test("passes changed bounds to the kernel, and the current bounds to a new listener", async () => {
  const [one, other] = [spokenProcess(), spokenProcess()];
  const { clock, stop, done, notifier } = await listening(one, other);
  notifier.setBounds([bound("hard memory", 10), bound("soft memory", 20)]);
  const directory = "/sys/fs/cgroup/memory/kubepods";
  assert.equal(asked(one), `10 ${directory} hard memory\n20 ${directory} soft memory\n`);
  notifier.setBounds([bound("hard memory", 11)]);
  assert.equal(asked(one), `- ${directory} soft memory\n11 ${directory} hard memory\n`);
  one.end();
  await clock.advance(10_000);
  assert.equal(asked(other), `11 ${directory} hard memory\n`);
  stop.abort();
  await done;
});

test("logs once why notifications are unavailable, but nothing if the target is unreachable", async () => {
  const [mute, again] = [spokenProcess(), spokenProcess()];
  const missing = new CodedError("not_found", "perl: no such program");
  const { clock, stop, done, said, isNews } = await listening(
    missing,
    new CodedError("unavailable", "lost"),
    missing,
    mute,
    again,
  );
  await clock.advance(10_000);
  await clock.advance(10_000);
  assert.equal(said.length, 1);
  assert.match(said[0] ?? "", /perl: no such program/);
  await clock.advance(10_000);
  mute.stdout.write("failed /sys/fs/cgroup/memory: Permission denied\n");
  mute.end("no events on m68k\n");
  await clock.advance(10_000);
  assert.equal(said.length, 3);
  again.stdout.write("crossed hard memory\n");
  assert.equal(await isNews(), true);
  stop.abort();
  await done;
});

test("rate-limits log lines and observations for a target that keeps sending reasons and crossings", async () => {
  const kernel = spokenProcess();
  const { clock, stop, done, said, isNews } = await listening(kernel);
  for (let n = 0; n < 1_000; n++) kernel.stdout.write(`failed ${n} ${"x".repeat(1_000)}\ncrossed hard memory ${n}\n`);
  await clock.advance(0);
  assert.equal(said.length, 16);
  assert.ok(said.every((line) => line.length < 1_000));
  assert.equal(await isNews(), false, "an unknown bound");
  for (let n = 0; n < 10; n++) {
    kernel.stdout.write("crossed hard memory\n");
    assert.equal(await isNews(), n === 0);
  }
  await clock.advance(1_000);
  assert.equal(await isNews(), true);
  stop.abort();
  await done;
});
