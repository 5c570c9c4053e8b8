import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { openSystemdCgroups } from "../../../../src/host/systemd/cgroups.ts";
import { fakeClock } from "../../../fakes/clock.ts";
import { fakeHost } from "../../../fakes/host.ts";
import { never } from "../../../fakes/signals.ts";
import { fakeSystemd } from "../../../fakes/systemd.ts";

const tier = "/kubepods.slice/kubepods-burstable.slice";
const pod = `${tier}/kubepods-burstable-pod1.slice`;
const slice = "kubepods-burstable-pod1.slice";
const limits = { cpuShares: 512, cpuPeriodUs: 100_000, cpuQuotaUs: 12_500, memoryBytes: 1 << 20, pids: 42 };

async function start(options: Parameters<typeof fakeSystemd>[1] = {}, hasBus = true) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const systemd = await fakeSystemd(host, hasBus ? options : undefined);
  const cgroups = await openSystemdCgroups({ host, version: 2, clock }, never);
  const heard = () => systemd.heard.splice(0).map(({ member, unit }) => `${member} ${unit}`);
  const read = (file: string) => host.files.text(`/sys/fs/cgroup${pod}/${file}`);
  return { clock, host, systemd, cgroups, heard, read, [Symbol.asyncDispose]: () => cgroups[Symbol.asyncDispose]() };
}

test("starts a pod's slice with its limits below its parent; the cgroup files show the limits as systemd rounds them", async () => {
  await using t = await start();
  assert.equal(t.systemd.connections(), 0, "no connection before the first pod");
  await t.cgroups.create(pod, limits, never);
  assert.deepEqual(
    t.systemd.heard.map(({ member, unit }) => `${member} ${unit}`),
    ["kubepods.slice", "kubepods-burstable.slice", slice].map((unit) => `StartTransientUnit ${unit}`),
  );
  assert.deepEqual(t.systemd.heard.at(-1)?.properties?.slice(1), [
    "Wants=as:kubepods-burstable.slice",
    "MemoryAccounting=b:true",
    "CPUAccounting=b:true",
    "IOAccounting=b:true",
    "TasksAccounting=b:true",
    "DefaultDependencies=b:false",
    "MemoryMax=t:1048576",
    "CPUWeight=t:20",
    "CPUQuotaPeriodUSec=t:100000",
    "CPUQuotaPerSecUSec=t:130000",
    "TasksMax=t:42",
  ]);
  assert.deepEqual(["cpu.max", "cpu.weight", "memory.max", "pids.max"].map(t.read), [
    "13000 100000",
    "20",
    "1048576",
    "42",
  ]);
});

test("sets limits of a running slice, and does not restart existing slices", async () => {
  await using t = await start();
  for (const unit of ["kubepods.slice", "kubepods-burstable.slice", slice]) t.systemd.units.add(unit);
  await t.cgroups.ensure(pod, { memoryBytes: 1 << 21, cpus: "0-9" }, never);
  assert.deepEqual(t.systemd.heard.at(-1), {
    member: "SetUnitProperties",
    unit: slice,
    properties: ["MemoryMax=t:2097152", "AllowedCPUs=ay:ff03"],
  });
  t.heard();
  await t.cgroups.ensure(pod, { pids: 7 }, never);
  await t.cgroups.ensure(pod, {}, never);
  assert.deepEqual(t.heard(), [`SetUnitProperties ${slice}`]);
  assert.deepEqual(t.systemd.connections(), 1);
});

test("removal stops the slice and deletes the directories that systemd left, and succeeds if the slice is missing", async () => {
  await using t = await start();
  await t.cgroups.create(pod, limits, never);
  await t.host.fs.apply([{ kind: "remove", path: `/sys/fs/cgroup${pod}`, recursive: true }]);
  await t.host.fs.apply([{ kind: "mkdir", path: `/sys/fs/cgroup${pod}` }]);
  t.heard();
  await t.cgroups.remove([pod], never);
  assert.deepEqual(t.heard(), [`StopUnit ${slice}`, `ResetFailedUnit ${slice}`]);
  assert.deepEqual(await t.cgroups.children(tier, never), []);
  await t.cgroups.remove([pod], never);
  await t.cgroups.create(pod, limits, never);
  assert.ok(t.systemd.units.has(slice));
});

test("the next change restarts a slice that others stopped", async () => {
  await using t = await start();
  await t.cgroups.create(pod, limits, never);
  t.systemd.units.delete(slice);
  t.heard();
  await t.cgroups.ensure(pod, { pids: 7 }, never);
  assert.ok(t.systemd.units.has(slice));
  assert.deepEqual(t.systemd.heard.at(-1)?.properties?.at(-1), "TasksMax=t:7");
  assert.equal(t.read("pids.max"), "7");
});

test("resets and restarts a slice that fails to start, and if it fails again, reports the job's result", async () => {
  await using t = await start();
  t.systemd.results.push("failed");
  await t.cgroups.ensure("/kubepods.slice", {}, never);
  assert.deepEqual(
    t.heard(),
    ["StartTransientUnit", "ResetFailedUnit", "StartTransientUnit"].map((call) => `${call} kubepods.slice`),
  );
  t.systemd.results.push("failed", "canceled");
  await assert.rejects(t.cgroups.ensure("/other.slice", {}, never), {
    code: "failed_precondition",
    message: /canceled/,
  });
});

test("waits at most 30 seconds for a job, and stops waiting when the caller aborts", async () => {
  await using t = await start();
  t.systemd.results.push("never");
  const late = assert.rejects(t.cgroups.ensure("/kubepods.slice", {}, never), { code: "deadline_exceeded" });
  while (!t.systemd.units.has("kubepods.slice")) await new Promise(setImmediate);
  await new Promise(setImmediate);
  await t.clock.advance(30_000);
  await late;
  t.systemd.results.push("never");
  const caller = new AbortController();
  const given = assert.rejects(t.cgroups.ensure("/two.slice", {}, caller.signal), { code: "cancelled" });
  while (!t.systemd.units.has("two.slice")) await new Promise(setImmediate);
  caller.abort();
  await given;
});

test("closes an idle connection; if a connection is lost, rejects calls in flight and reconnects for the next change", async () => {
  await using t = await start();
  await t.cgroups.ensure("/kubepods.slice", {}, never);
  assert.equal(t.systemd.connections(), 1);
  await t.clock.advance(5_000);
  await new Promise(setImmediate);
  assert.equal(t.systemd.connections(), 0);
  t.systemd.results.push("never");
  const lost = assert.rejects(t.cgroups.ensure("/two.slice", {}, never), { code: "unavailable" });
  while (!t.systemd.units.has("two.slice")) await new Promise(setImmediate);
  t.systemd.cut();
  await lost;
  await t.cgroups.ensure("/three.slice", {}, never);
  assert.ok(t.systemd.units.has("three.slice"));
});

for (const refusal of [{ denies: true }, { rejects: true }])
  test(`falls back to the relay permanently when the bus ${Object.keys(refusal).join()} the login`, async () => {
    await using t = await start(refusal);
    t.host.program("systemd-stdio-bridge", (_args, { stdin, stdout, killed }) => {
      const [near, far] = duplexPair();
      t.systemd.serve(far);
      stdin.pipe(near).pipe(stdout);
      return new Promise((resolve) => killed.addEventListener("abort", () => resolve(143), { once: true }));
    });
    await t.cgroups.create(pod, {}, never);
    assert.ok(t.systemd.units.has(slice));
    await t.cgroups.remove([pod], never);
    assert.ok(!t.systemd.units.has(slice));
    assert.equal(t.host.commands.length, 1);
  });

test("reports a user without any permission", async () => {
  await using t = await start({ denies: true });
  await assert.rejects(t.cgroups.create(pod, limits, never), { code: "permission_denied" });
});

test("uses systemctl when there is no bus", async () => {
  await using t = await start({}, false);
  const commands: string[] = [];
  t.host.program("systemctl", ([, ...args], { stdout }) => {
    commands.push(args.join(" "));
    if (args[0] === "--version") stdout.write("systemd 252 (252.38-1~deb12u1)\n+PAM\n");
    return args[0] === "stop" ? 5 : 0;
  });
  await t.cgroups.create(pod, limits, never);
  const accounting = "MemoryAccounting=true CPUAccounting=true IOAccounting=true TasksAccounting=true";
  assert.deepEqual(commands.splice(0), [
    "--version",
    "start kubepods.slice",
    `set-property --runtime kubepods.slice ${accounting}`,
    "start kubepods-burstable.slice",
    `set-property --runtime kubepods-burstable.slice ${accounting}`,
    `start ${slice}`,
    `set-property --runtime ${slice} ${accounting} MemoryMax=1048576 CPUWeight=20 CPUQuotaPeriodSec=100000us CPUQuota=13% TasksMax=42`,
  ]);
  await t.cgroups.remove(["/other.slice"], never);
  assert.deepEqual(commands, ["stop other.slice", "reset-failed other.slice", "revert --no-reload other.slice"]);
});

test("resets a failed unit that systemctl no longer finds", async () => {
  await using t = await start({}, false);
  const commands: string[] = [];
  t.host.program("systemctl", ([, ...args], { stdout }) => {
    commands.push(args.join(" "));
    if (args[0] === "--version") stdout.write("systemd 252\n");
    return args[0] === "start" && !commands.includes("daemon-reload") ? 5 : 0;
  });
  await t.cgroups.ensure("/kubepods.slice", {}, never);
  assert.deepEqual(commands.slice(1, 4), ["start kubepods.slice", "daemon-reload", "start kubepods.slice"]);
});

test("treats a polkit password prompt as permission denied", async () => {
  await using t = await start({}, false);
  t.host.program("systemctl", ([, verb], { stdout, stderr }) => {
    if (verb === "--version") stdout.write("systemd 252\n");
    else stderr.write("Failed to start kubepods.slice: Interactive authentication required.\n");
    return verb === "--version" ? 0 : 1;
  });
  await assert.rejects(t.cgroups.create(pod, limits, never), {
    code: "permission_denied",
    message: /Interactive authentication required/,
  });
});

test("on a machine without systemd, reports what is missing", async () => {
  await using t = await start({}, false);
  await assert.rejects(t.cgroups.create(pod, limits, never), {
    code: "unavailable",
    message: /neither a system bus nor systemctl/,
  });
});
