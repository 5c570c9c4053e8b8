import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { runGroup } from "../../../src/lib/runnables.ts";
import { notifyServiceManager, watchdogTimeout } from "../../../src/process/service-manager.ts";
import { fakeClock } from "../../fakes/clock.ts";

/** A process with a systemd-notify that writes down what it is told. */
async function told(t: TestContext, env: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-notify-"));
  t.after(() => rm(folder, { recursive: true }));
  const program = join(folder, "systemd-notify");
  const file = join(folder, "told");
  await writeFile(program, `#!/bin/sh\necho "$@" >>${file}\n`);
  await chmod(program, 0o755);
  const clock = fakeClock();
  const stop = new AbortController();
  const state = { unready: "not yet" as string | undefined, trouble: undefined as string | undefined };
  const errors: string[] = [];
  const services = notifyServiceManager({
    env: { PATH: `${folder}:${process.env.PATH}`, ...env },
    readiness: { unready: () => state.unready },
    liveness: { trouble: () => state.trouble },
    clock,
    log: createLogger(0, { write: (line) => void errors.push(line) }),
  });
  const running = runGroup(services, stop.signal);
  const lines = () => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : []);
  const until = async (...words: readonly string[]) => {
    const wanted = words.map((word) => `--pid=${process.pid} ${word}`).join();
    const since = performance.now();
    while (lines().join() !== wanted) {
      if (performance.now() - since > 20_000) assert.deepEqual(lines().join(), wanted);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const end = async () => {
    stop.abort();
    await running;
  };
  return { clock, state, errors, services, lines, until, end };
}

const socket = { NOTIFY_SOCKET: "/run/systemd/notify" };

test("notifies systemd when the nodes are ready, and when the process stops", async (t) => {
  const p = await told(t, socket);
  await p.clock.advance(500);
  assert.deepEqual(p.lines(), []);
  p.state.unready = undefined;
  await p.clock.advance(100);
  await p.until("READY=1");
  await p.end();
  await p.until("READY=1", "STOPPING=1");
});

test("notifies the watchdog at half of its timeout, unless the process is unhealthy", async (t) => {
  const p = await told(t, { ...socket, WATCHDOG_USEC: "20000000" });
  /** Both services rest: what was said has reached systemd. */
  const rested = async () => {
    while (p.clock.pending < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  };
  await p.until("WATCHDOG=1");
  await rested();
  await p.clock.advance(10_000);
  await p.until("WATCHDOG=1", "WATCHDOG=1");
  await rested();
  p.state.trouble = "the sync loop hangs";
  await p.clock.advance(10_000);
  assert.match(p.errors.join(), /Do not notify watchdog this iteration as the kubelet is reportedly not healthy/);
  p.state.trouble = undefined;
  await p.clock.advance(10_000);
  await p.until("WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1");
  await p.end();
});

test("sends nothing without a service manager", async (t) => {
  const p = await told(t, { WATCHDOG_USEC: "20000000" });
  assert.deepEqual(p.services, []);
  await p.end();
});

test("parses the watchdog timeout like the kubelet", () => {
  assert.equal(watchdogTimeout({}), 0);
  assert.equal(watchdogTimeout({ WATCHDOG_USEC: "30000000" }), 30_000);
  assert.equal(watchdogTimeout({ WATCHDOG_USEC: "30000000", WATCHDOG_PID: String(process.pid) }), 30_000);
  assert.equal(watchdogTimeout({ WATCHDOG_USEC: "30000000", WATCHDOG_PID: "1" }), 0, "another process's");
  const refused = (WATCHDOG_USEC: string, message: RegExp, more = {}) =>
    assert.throws(() => watchdogTimeout({ WATCHDOG_USEC, ...more }), { code: "invalid_argument", message });
  refused("1000000", /^create health checker: configure watchdog timeout too small: 1s$/);
  refused("-1", /^create health checker: configure watchdog: error WATCHDOG_USEC must be a positive number$/);
  refused("soon", /^create health checker: configure watchdog: error converting WATCHDOG_USEC: /);
  refused("30000000", /configure watchdog: error converting WATCHDOG_PID: /, { WATCHDOG_PID: "me" });
});
