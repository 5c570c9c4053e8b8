import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createOomWatcher, setOwnOomScore } from "../../../src/node/oom-watcher.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type Spawned, spawning, spokenProcess } from "../../fakes/process.ts";

/** A watcher whose readers are controlled by the test. */
function watching(...given: readonly Spawned[]) {
  const clock = fakeClock();
  const stop = new AbortController();
  const said: string[] = [];
  const events: unknown[] = [];
  const log = createLogger(0, { write: (text: string) => said.push(text) });
  const sink = { event: (...event: readonly unknown[]) => void events.push(event.slice(1)) };
  const deps = { host: spawning(...given), nodeName: "n", events: sink, waitForTarget: undefined, clock, log };
  const done = createOomWatcher(deps).run(stop.signal);
  return { clock, stop, done, events, said };
}

const kill = (pid: number) => `4,1,1,-;a invoked oom-killer: x\n3,2,1,-;Out of memory: Killed process ${pid} (a b) y\n`;
const systemOom = (pid: number) => ["Warning", "SystemOOM", `System OOM encountered, victim process: a b, pid: ${pid}`];

test("emits an event for a system-wide OOM kill, but not for one within a cgroup", async () => {
  const kernel = spokenProcess();
  const { clock, stop, done, events } = watching(kernel);
  await clock.advance(0);
  for (const letter of kill(12)) kernel.stdout.write(letter);
  kernel.stdout.write(
    "4,1,1,-;a invoked oom-killer: x\n6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods,task_memcg=/kubepods/c,task=a,pid=13,uid=0\n",
  );
  await clock.advance(0);
  assert.deepEqual(events, [systemOom(12)]);
  stop.abort();
  await done;
  assert.ok(kernel.stdin.writableEnded, "the reader is left to its end");
});

test("restarts a reader that ends, and logs an unreadable log once", async () => {
  const [lost, forbidden, again] = [spokenProcess(), spokenProcess(), spokenProcess()];
  const { clock, stop, done, events, said } = watching(lost, new CodedError("unavailable", "lost"), forbidden, again);
  await clock.advance(0);
  lost.end("listening");
  await clock.advance(10_000);
  await clock.advance(10_000);
  assert.deepEqual(said, []);
  forbidden.end("sh: 2: cannot open /dev/kmsg: Operation not permitted");
  await clock.advance(10_000);
  again.stdout.write(kill(1));
  await clock.advance(0);
  again.end("sh: cannot open /dev/kmsg");
  await clock.advance(10_000);
  assert.deepEqual(events, [systemOom(1)]);
  assert.equal(said.length, 1);
  assert.match(said.join(), /SystemOOM events are unavailable/);
  assert.match(said.join(), /Operation not permitted/);
  stop.abort();
  await done;
});

test("writes the process's OOM score if it differs, and only logs a failure", async () => {
  const directory = await mkdtemp(join(tmpdir(), "graftlet-oom-"));
  const said: string[] = [];
  const log = createLogger(0, { write: (text: string) => said.push(text) });
  try {
    const path = join(directory, "oom_score_adj");
    await writeFile(path, "0\n");
    await setOwnOomScore(-999, log, path);
    assert.equal(await readFile(path, "utf8"), "-999");
    await setOwnOomScore(0, log, join(directory, "absent"));
    assert.match(said.join(), /Failed to ApplyOOMScoreAdj/);
  } finally {
    await rm(directory, { recursive: true });
  }
});
