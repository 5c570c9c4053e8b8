import assert from "node:assert/strict";
import { test } from "node:test";
import { inhibitDelayDirectory, inhibitDelayFile } from "../../../src/host/systemd/logind.ts";
import { readOwnershipRecord, writeOwnershipRecord } from "../../../src/host/ownership-record.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createShutdownManager } from "../../../src/shutdown/shutdown.ts";
import { createValue } from "../../../src/state/values.ts";
import type { WorkerView } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { fakeLogind } from "../../fakes/logind.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { fakeTargetGate } from "../../fakes/target-gate.ts";
import { aColumn, signalLines } from "../../fakes/state.ts";

const rootDir = "/var/lib/kubelet";
const began = "Normal Shutdown Shutdown manager detected shutdown event";
const calledOff = "Normal Shutdown Shutdown manager detected shutdown cancellation";

async function until(holds: () => boolean): Promise<void> {
  for (let turns = 0; !holds(); turns++) {
    if (turns > 2_000) assert.fail(`in vain: ${String(holds)}`);
    await new Promise(setImmediate);
  }
}

/** A node with these pods, on a machine with logind by default. */
async function node(pods: readonly TestPod[] = [], hasLogind = true) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  await host.fs.apply([{ kind: "mkdir", path: `${rootDir}/graftlet`, parents: true }]);
  await host.fs.apply([{ kind: "mkdir", path: "/etc/systemd", parents: true }]);
  await writeOwnershipRecord(host.fs, rootDir, { node: "n", made: ["/x"] }, never);
  const logind = hasLogind ? await fakeLogind(host) : undefined;
  const worker = aColumn<WorkerView>();
  for (const pod of pods) worker.set(pod.metadata.uid, { phase: "syncing", pod: undefined });
  const goingDown = createValue<true>();
  const signals = signalLines();
  const events = eventLines();
  const target = fakeTargetGate();
  const times = { began: 0, ended: 0 };
  const lines: string[] = [];
  const stop = new AbortController();
  const manager = createShutdownManager({
    periods: [
      { priority: 0, seconds: 20 },
      { priority: 2_000_000_000, seconds: 10 },
    ],
    nodeName: "n",
    rootDir,
    recordsShutdowns: true,
    pods: { list: () => pods },
    podCache: { get: () => undefined },
    worker,
    shuttingDown: goingDown.writer,
    signals,
    host,
    isRemote: false,
    events,
    measures: { began: (at) => void (times.began = at), ended: (at) => void (times.ended = at) },
    waitForTarget: target.present,
    clock,
    log: createLogger(0, { write: (line) => void lines.push(line) }),
  });
  const running = manager.run(stop.signal);
  return {
    clock,
    host,
    goingDown: goingDown.reader,
    signals,
    events,
    target,
    times,
    lines,
    running,
    logind: logind as NonNullable<typeof logind>,
    finish: (...names: readonly string[]) =>
      names.forEach((uid) => worker.set(uid, { phase: "finished", pod: undefined })),
    said: (text: string) => lines.filter((line) => line.includes(text)).length,
    record: () => JSON.parse(host.files.text(`${rootDir}/graceful_node_shutdown_state`)) as Record<string, string>,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}

const pod = (uid: string, priority: number, terminationGracePeriodSeconds = 30) =>
  aPod({ priority, terminationGracePeriodSeconds }, { uid, name: uid });
const three = [pod("late", 2_000_000_000), pod("slow", 0), pod("quick", 5, 2)];

test("raises logind's inhibit delay to the total grace period with a drop-in file that the node records as its own", async () => {
  await using t = await node();
  await until(() => t.logind.locks() === 1);
  assert.equal(t.logind.delaySeconds, 30);
  assert.equal(t.host.files.text(inhibitDelayFile), "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n");
  assert.deepEqual(await readOwnershipRecord(t.host.fs, rootDir, never), {
    node: "n",
    made: ["/x", inhibitDelayDirectory],
    files: [inhibitDelayFile],
  });
  assert.equal(t.logind.connections(), 1);
});

test("logs the kubelet's error once if logind keeps its own delay", async () => {
  await using t = await node();
  t.logind.isDeaf = true;
  for (let round = 0; round < 6; round++) {
    for (let turns = 0; turns < 50; turns++) await new Promise(setImmediate);
    await t.clock.advance(1_600);
  }
  await t.running;
  assert.equal(t.said("Failed to start node shutdown manager"), 1);
  assert.match(
    t.lines.join(),
    /timed out after 5 attempts waiting for logind InhibitDelayMaxSec to update to 30s \(ShutdownGracePeriod\), current value is 5s/,
  );
  assert.equal(t.logind.locks(), 0);
});

test("logs a machine without logind once and changes nothing else", async () => {
  await using t = await node(three, false);
  await t.running;
  assert.equal(t.said("Failed to start node shutdown manager"), 1);
  assert.deepEqual([t.signals.sent, t.events.lines], [[], []]);
});

test("ends pods group by group, releases the machine after the last group, and records the times", async () => {
  await using t = await node(three);
  await until(() => t.logind.locks() === 1);
  await t.logind.announce(true);
  await until(() => t.signals.sent.length === 3);
  assert.deepEqual(t.signals.sent, ["nodeChanged", "end slow 20 Terminated", "end quick 2 Terminated"]);
  assert.equal(t.goingDown.get(), true);
  assert.deepEqual(t.events.lines, [began]);
  assert.equal(t.record()["endTime"], "0001-01-01T00:00:00Z");
  t.finish("quick");
  await t.clock.advance(5_000);
  assert.equal(t.signals.sent.length, 3, "volumes of the first group are in use yet");
  t.finish("slow");
  await until(() => t.signals.sent.includes("end late 10 Terminated"));
  assert.equal(t.logind.locks(), 1);
  t.finish("late");
  await until(() => t.logind.locks() === 0);
  assert.equal(Date.parse(t.record()["endTime"] ?? ""), t.times.ended);
  assert.equal(t.times.ended - t.times.began, 5_000);
});

test("stops waiting for a group when its time is over", async () => {
  await using t = await node(three);
  await until(() => t.logind.locks() === 1);
  await t.logind.announce(true);
  await until(() => t.signals.sent.length === 3);
  const exceeded = () => t.events.lines.filter((line) => line.includes("ExceededGracePeriod"));
  await t.clock.advance(9_000);
  assert.deepEqual(exceeded(), []);
  await t.clock.advance(11_000);
  await until(() => t.signals.sent.includes("end late 10 Terminated"));
  const text = "Container runtime did not kill the pod within specified grace period.";
  assert.deepEqual(exceeded(), [`Warning ExceededGracePeriod ${text}`], "of the pod whose own time was over, quick");
  await t.clock.advance(10_000);
  await until(() => t.logind.locks() === 0);
  assert.equal(t.said("Shutdown manager pod killing time out"), 2);
});

test("clears the node's shutdown state and acquires a new lock when the shutdown is cancelled", async () => {
  await using t = await node();
  await until(() => t.logind.locks() === 1);
  await t.logind.announce(true);
  await until(() => t.logind.locks() === 0);
  await t.logind.announce(false);
  await until(() => t.logind.locks() === 1);
  assert.equal(t.goingDown.get(), undefined);
  assert.deepEqual(t.events.lines, [began, calledOff]);
});

test("ends no pods when another user of the machine schedules a shutdown", async () => {
  await using t = await node(three);
  await until(() => t.logind.locks() === 1);
  await t.logind.announce(true, ":1.66");
  t.logind.isShuttingDown = true;
  await t.logind.announce(true, "org.freedesktop.login1");
  for (let turns = 0; turns < 50; turns++) await new Promise(setImmediate);
  assert.deepEqual([t.signals.sent, t.events.lines, t.logind.locks()], [[], [], 1]);
});

test("ends no pods on a signal while logind reports no shutdown", async () => {
  await using t = await node(three);
  await until(() => t.logind.locks() === 1);
  const announced = t.logind.announce(true);
  t.logind.isShuttingDown = false;
  await announced;
  for (let turns = 0; turns < 50; turns++) await new Promise(setImmediate);
  assert.deepEqual([t.signals.sent, t.logind.locks()], [[], 1]);
});

test("reconnects to a restarted bus while keeping one lock, and re-acquires a lock whose holder ended", async () => {
  await using t = await node();
  await until(() => t.logind.locks() === 1);
  for (const lose of [t.logind.cut, t.logind.endLocks]) {
    lose();
    await until(() => t.said("Unable to watch the node for shutdown events") > 0);
    t.lines.length = 0;
    await t.clock.advance(1_000);
    await until(() => t.logind.connections() === 1 && t.logind.locks() === 1);
  }
  await t.logind.announce(true);
  await until(() => t.events.lines.includes(began));
});

test("ends pods without a lock when the node starts during a shutdown", async () => {
  await using t = await node(three);
  t.logind.isShuttingDown = true;
  await until(() => t.signals.sent.includes("end slow 20 Terminated"));
  assert.equal(t.goingDown.get(), true);
  assert.equal(t.logind.locks(), 0);
});

test("when a link lost during a shutdown is back, ends the remaining pods, or clears the state if the shutdown was cancelled", async () => {
  await using t = await node(three);
  await until(() => t.logind.locks() === 1);
  await t.logind.announce(true);
  await until(() => t.signals.sent.length === 3);
  t.target.lose();
  await until(() => t.logind.connections() === 0 && t.logind.locks() === 0);
  t.finish("slow", "quick");
  t.logind.isShuttingDown = true;
  t.target.find();
  await t.clock.advance(1_000);
  await until(() => t.signals.sent.includes("end late 10 Terminated"));
  t.target.lose();
  await until(() => t.logind.connections() === 0);
  t.logind.isShuttingDown = false;
  t.target.find();
  await t.clock.advance(1_000);
  await until(() => t.logind.locks() === 1);
  assert.equal(t.goingDown.get(), undefined);
  assert.equal(t.events.lines.at(-1), calledOff);
});

test("republishes the previous shutdown's times after a restart", async () => {
  const state = { startTime: "2026-01-02T03:04:05.678Z", endTime: "0001-01-01T00:00:00Z" };
  await using t = await node();
  t.host.files.put(`${rootDir}/graceful_node_shutdown_state`, { data: JSON.stringify(state) });
  await until(() => t.times.began > 0);
  assert.deepEqual(t.times, { began: Date.parse(state.startTime), ended: 0 });
});
