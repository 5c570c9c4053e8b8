import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { localHost } from "../../../providers/local/host.ts";
import { acquireLocks, furtherConnectionCommand } from "../../../src/host/lock.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { fakeClock } from "../../fakes/clock.ts";
import type { Host } from "../../../src/seams/host.ts";
import { never } from "../../fakes/signals.ts";
import { argvOf } from "../../harness/argv.ts";

async function lockFile(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "graftlet-lock-"));
  t.after(() => rm(directory, { recursive: true }));
  return join(directory, "lock");
}

test("a lock has one holder until it is released", async (t) => {
  const host = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  const held = await acquireLocks(host, [{ path }], never);
  await assert.rejects(acquireLocks(host, [{ path }], never), {
    code: "failed_precondition",
    message: `${path} is locked by another agent`,
  });
  await held[Symbol.asyncDispose]();
  await using _again = await acquireLocks(host, [{ path }], never);
});

test("a lock on this machine needs no helper process", async (t) => {
  const host = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  await using held = await acquireLocks(host, [{ path }], never);
  const { stdout } = await host.run(argvOf(["ps", "-o", "comm=", "--ppid", String(process.pid)]));
  assert.deepEqual(stdout.trim().split("\n"), ["ps"]);
  assert.equal((await host.run(argvOf(["flock", "-n", path, "true"]))).code, 1);
  assert.equal(held.isVerified(), true);
});

test("a lock on another machine outlives the signal that limited the time to acquire it", async (t) => {
  const { spawn } = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  const attempt = new AbortController();
  await using held = await acquireLocks({ spawn }, [{ path }], attempt.signal);
  attempt.abort();
  await systemClock().sleep(200);
  assert.equal(held.hasEnded(), false);
  await assert.rejects(acquireLocks({ spawn }, [{ path }], never), { code: "failed_precondition" });
});

test("a lock on another machine is lost when its holder process dies", async (t) => {
  const { spawn } = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  const pids: number[] = [];
  const host: Pick<Host, "spawn"> = {
    async spawn(...given) {
      const started = await spawn(...given);
      pids.push(started.pid);
      return started;
    },
  };
  const first = await acquireLocks(host, [{ path }], never);
  for (const pid of pids) process.kill(pid, "SIGKILL");
  await first.ended;
  await assert.rejects(first.verify(), { code: "unavailable" });
  await using _next = await acquireLocks({ spawn }, [{ path }], never);
});

test("aborting the signal ends a lock holder that has not answered yet", async (t) => {
  const { spawn } = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  const attempt = new AbortController();
  const host: Pick<Host, "spawn"> = {
    async spawn(...given) {
      const started = await spawn(...given);
      attempt.abort(new Error("took too long"));
      return started;
    },
  };
  await assert.rejects(acquireLocks(host, [{ path }], attempt.signal), { message: "took too long" });
  await using _next = await acquireLocks({ spawn }, [{ path }], never);
});

test("a lock file that cannot be opened is not reported as held by another agent", async (t) => {
  const host = localHost({ clock: systemClock() });
  const path = `${await lockFile(t)}/below/nothing`;
  const refused = await acquireLocks(host, [{ path }], never).catch((error: unknown) => error);
  assert.ok(refused instanceof Error && !refused.message.includes("another agent"), String(refused));
});

test("acquires either all of several locks or none, including on directories; shared locks have many holders", async (t) => {
  const host = localHost({ clock: systemClock() });
  const path = await lockFile(t);
  const directory = dirname(path);
  const other = `${directory}/other`;
  const first = await acquireLocks(host, [{ path }, { path: directory, shared: true }], never);
  assert.equal(first.hasEnded(), false);
  await using _second = await acquireLocks(host, [{ path: other }, { path: directory, shared: true }], never);
  await assert.rejects(acquireLocks(host, [{ path: `${directory}/third` }, { path: directory }], never), {
    path: directory,
  });
  await using _third = await acquireLocks(host, [{ path: `${directory}/third` }], never);
  await first[Symbol.asyncDispose]();
  assert.equal(first.hasEnded(), true);
});

test("a holder keeps its locks while heartbeats arrive, and releases the locks when heartbeats stop", async (t) => {
  const clock = systemClock();
  const { spawn } = localHost({ clock });
  const host = { spawn };
  const path = await lockFile(t);
  const other = `${dirname(path)}/other`;
  const silent = await acquireLocks(host, [{ path }], never, {
    clock: fakeClock(),
    intervalMs: 100,
    timeoutSeconds: 1,
  });
  await using living = await acquireLocks(host, [{ path: other }], never, {
    clock,
    intervalMs: 100,
    timeoutSeconds: 1,
  });
  const began = performance.now();
  while (!silent.hasEnded()) {
    assert.ok(performance.now() - began < 30_000);
    await clock.sleep(50);
  }
  assert.ok(performance.now() - began > 500);
  await using _next = await acquireLocks(host, [{ path }], never);
  await clock.sleep(500);
  assert.equal(living.hasEnded(), false);
  await living.verify();
});

test("a further connection is recorded in place of those that have ended, and refused once a later epoch has the locks", async (t) => {
  const host = localHost({ clock: systemClock() });
  const directory = dirname(await lockFile(t));
  const stat = await readFile("/proc/self/stat", "latin1");
  const started = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  const boot = (await readFile("/proc/sys/kernel/random/boot_id", "latin1")).trim();
  const running = `${process.pid} ${started} ${boot}`;
  const record = (epoch: number, server: string) =>
    host.run(furtherConnectionCommand({ directory, token: { object: "one", epoch } }, server));
  const recorded = () => readFile(join(directory, "connection.4"), "latin1");

  await writeFile(join(directory, "token"), "one 4\n");
  await writeFile(join(directory, "connection.4"), `${process.pid} 1 ${boot}\n${running}\n`);
  assert.equal((await record(4, `77 88 ${boot}`)).code, 0);
  assert.equal(await recorded(), `${running}\n77 88 ${boot}\n`);
  await writeFile(join(directory, "token"), "one 5\n");
  assert.equal((await record(4, `99 11 ${boot}`)).code, 91);
});
