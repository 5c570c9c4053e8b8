import assert from "node:assert/strict";
import { test } from "node:test";
import { RuntimeFeatures, RuntimeHandler } from "../../../src/gen/cri.ts";
import { isProblem } from "../../../src/api/node-conditions.ts";
import type { HostFacts } from "../../../src/host/facts.ts";
import type { RuntimeHealth } from "../../../src/node/runtime-health.ts";
import { isolationCondition } from "../../../src/node/target-conditions.ts";
import { type TargetStatusDeps, createTargetStatus } from "../../../src/node/target-status.ts";
import type { NodePressure } from "../../../src/pipeline.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeLink } from "../../fakes/link.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";

const none = { memory: false, disk: false, pid: false };

function rig(version: "known" | "unknown" = "known", traits: Partial<TargetStatusDeps> = {}) {
  const clock = fakeClock();
  const known: { now: NodePressure | undefined } = { now: { pressure: none, problem: undefined } };
  const runtime = fakeRuntime({ clock });
  runtime.addImage("busybox:1", { size: 5n });
  runtime.addImage("nginx:1", { size: 7n });
  const answer = { version: "0.1.0", runtimeName: "fake", runtimeVersion: "v1.0.0~ds1", runtimeApiVersion: "v1" };
  const told: { answers: boolean; handlers?: readonly RuntimeHandler[]; features?: RuntimeFeatures } = {
    answers: true,
  };
  const health = {
    problems: (unhealthy = []) => [...unhealthy, "container runtime network not ready"].slice(0, 2 * unhealthy.length),
    version: () => (version === "known" ? answer : undefined),
    isAnswering: () => told.answers,
    handlers: () => told.handlers,
    features: () => told.features,
  } satisfies Partial<RuntimeHealth>;
  const settings = {
    port: 10_250,
    kubeletVersion: "v1.36.3",
    maxImages: 1,
  };
  const problems: string[] = [];
  const unhealthy: string[] = [];
  const facts = { maxPid: 1000, swapBytes: 0 } as HostFacts;
  const target = createTargetStatus(
    {
      settings,
      host: {},
      images: runtime,
      pressure: { get: () => known.now, written: Promise.resolve() },
      runtime: health as unknown as RuntimeHealth,
      problems: () => problems,
      unhealthy: () => unhealthy,
      goingDown: () => undefined,
      volumesInUse: () => undefined,
      link: undefined,
      isolation: undefined,
      reachable: undefined,
      rights: { read: async () => "whole" },
      placeholders: () => [],
      devices: { amounts: () => ({ capacity: { "a.b/c": "2" }, allocatable: { "a.b/c": "1" } }) },
      clock,
      ...traits,
    },
    { facts, addresses: () => [], capacity: { cpu: "1" }, allocatable: { cpu: "1" } },
  );
  const lines = async () => {
    const { verdicts } = await target.desired(never);
    return verdicts.map(({ type, status }) => `${type} ${status}`).join(", ");
  };
  return { clock, known, runtime, told, problems, unhealthy, target, lines };
}

test("adds device plugin resources to the target's resources", async () => {
  const { status } = await rig().target.desired(never);
  assert.deepEqual(status.capacity, { cpu: "1", "a.b/c": "2" });
  assert.deepEqual(status.allocatable, { cpu: "1", "a.b/c": "1" });
});

test("reports the runtime's name, its largest images and resource pressure", async () => {
  const { known, target, lines } = rig();
  const { status } = await target.desired(never);
  assert.equal(status.nodeInfo?.containerRuntimeVersion, "fake://1.0.0");
  assert.deepEqual(
    status.images?.map(({ sizeBytes }) => sizeBytes),
    [7],
  );
  known.now = undefined;
  assert.equal(await lines(), "Ready True", "nothing has been read yet");
  known.now = { pressure: { ...none, disk: true }, problem: undefined };
  assert.equal(await lines(), "MemoryPressure False, DiskPressure True, PIDPressure False, Ready True");
});

test("reports missing handler features, and a runtime that no longer has handlers", async () => {
  const { told, target } = rig();
  const shown = async () => {
    const { status } = await target.desired(never);
    return [status.runtimeHandlers, status.features];
  };
  assert.deepEqual(await shown(), [undefined, undefined], "the runtime has not answered yet");
  told.handlers = [RuntimeHandler.fromPartial({ name: "runc", features: { userNamespaces: true } })];
  told.features = RuntimeFeatures.fromPartial({ supplementalGroupsPolicy: true });
  assert.deepEqual(await shown(), [
    [{ name: "runc", features: { recursiveReadOnlyMounts: false, userNamespaces: true } }],
    { supplementalGroupsPolicy: true },
  ]);
  told.handlers = [RuntimeHandler.fromPartial({ name: "runsc" })];
  told.features = RuntimeFeatures.fromPartial({});
  assert.deepEqual(await shown(), [
    [{ name: "runsc", features: { recursiveReadOnlyMounts: false, userNamespaces: false } }],
    { supplementalGroupsPolicy: false },
  ]);
  told.handlers = [];
  assert.deepEqual((await shown())[0], []);
});

test("reports an unknown version for a runtime that does not respond, unless the link is lost", async () => {
  const link = fakeLink();
  const { told, target } = rig("known", { link });
  const shown = async () => (await target.desired(never)).status.nodeInfo?.containerRuntimeVersion;
  assert.equal(await shown(), "fake://1.0.0");
  told.answers = false;
  assert.equal(await shown(), "fake://Unknown");
  told.answers = true;
  assert.equal(await shown(), "fake://1.0.0");
  link.cut();
  told.answers = false;
  assert.equal(await shown(), "fake://1.0.0");
  link.mend();
  assert.equal(await shown(), "fake://1.0.0", "it has not been asked since");
  told.answers = true;
  await shown();
  told.answers = false;
  assert.equal(await shown(), "fake://Unknown");
  const local = rig();
  local.told.answers = false;
  const { status } = await local.target.desired(never);
  assert.equal(status.nodeInfo?.containerRuntimeVersion, "fake://Unknown");
});

test("lists problems in the kubelet's order", async () => {
  const { problems, unhealthy, target } = rig("known", { goingDown: () => true });
  unhealthy.push("PLEG is not healthy");
  problems.push("a storage driver is missing");
  assert.equal(
    (await target.desired(never)).verdicts.at(-1)?.message,
    "[PLEG is not healthy, container runtime network not ready, a storage driver is missing, node is shutting down]",
  );
});

test("the first status waits briefly for the first observation of the target", async () => {
  const looked = Promise.withResolvers<void>();
  const { clock, target } = rig("known", { pressure: { get: () => undefined, written: looked.promise } });
  let written = 0;
  const write = () => target.desired(never).then(() => (written += 1));
  const first = write();
  await clock.advance(1_999);
  assert.equal(written, 0);
  await clock.advance(1);
  await first;
  const second = write();
  looked.resolve();
  await second;
  assert.equal(written, 2);
});

test("reads images at most every half minute", async () => {
  const { clock, runtime, target } = rig();
  const reads = () => runtime.calls.filter(({ verb }) => verb === "listImages").length;
  for (let beat = 0; beat < 3; beat++) {
    await target.desired(never);
    await clock.advance(10_000);
  }
  assert.equal(reads(), 1);
  await target.desired(never);
  assert.equal(reads(), 2);
});

test("a hanging runtime delays the status by seconds only, and the last images are kept", async () => {
  const { clock, runtime, target } = rig();
  await target.desired(never);
  await clock.advance(30_000);
  const release = runtime.hold("listImages");
  const looking = target.desired(never);
  await clock.advance(2_000);
  const { status } = await looking;
  assert.equal(status.images?.length, 1);
  release();
});

test("does not query the runtime before its first answer", async () => {
  const { runtime, target } = rig("unknown");
  const { status } = await target.desired(never);
  assert.deepEqual([status.images, status.nodeInfo?.containerRuntimeVersion, runtime.calls], [[], "", []]);
});

test("reports an unreadable target as a problem, but no resource pressures", async () => {
  const { known, problems, target } = rig();
  known.now = { pressure: none, problem: "/proc/meminfo: not found" };
  problems.push("PLEG is not healthy");
  const { verdicts } = await target.desired(never);
  assert.equal(verdicts.length, 1);
  assert.match(
    verdicts[0]?.message ?? "",
    /^\[PLEG is not healthy, target cannot be read: \/proc\/meminfo: not found\]$/,
  );
});

test("sets no additional conditions for an ordinary target, and removes stale ones", async () => {
  const { target } = rig();
  assert.deepEqual((await target.desired(never)).absent, [
    "PodNetworkIsolated",
    "TargetPrivileges",
    "DaemonSetsSkipped",
    "KubeletReachable",
  ]);
});

test("sets conditions for an isolated network and missing privileges, with the node ready", async () => {
  const rights = { messages: ["User me is not root: log in as root.", "No awk: install it."], unsupported: {} };
  const { target, lines } = rig("known", {
    isolation: () => isolationCondition(undefined),
    rights: { read: async () => rights },
  });
  assert.equal(
    await lines(),
    "PodNetworkIsolated True, TargetPrivileges False, MemoryPressure False, DiskPressure False, PIDPressure False, Ready True",
  );
  const { verdicts, absent } = await target.desired(never);
  assert.deepEqual(absent, ["DaemonSetsSkipped", "KubeletReachable"]);
  const told = verdicts.find(({ type }) => type === "TargetPrivileges");
  assert.deepEqual(
    [told?.reason, told?.message],
    ["InsufficientPrivileges", "User me is not root: log in as root. No awk: install it."],
  );
  const asked = rig("known", { rights: { read: async () => ({ ...rights, sudoNeedsPassword: true }) } });
  const { verdicts: own } = await asked.target.desired(never);
  assert.equal(own.find(({ type }) => type === "TargetPrivileges")?.reason, "SudoNeedsPassword");
});

test("names at most five DaemonSets of placeholders, in a condition that does not count as a problem", async () => {
  const counts = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ namespace: "agents", daemonSet: `a${index}`, pods: 1 }));
  const skipped = async (count: number) => {
    const { verdicts } = await rig("known", { placeholders: () => counts(count) }).target.desired(never);
    return verdicts.find(({ type }) => type === "DaemonSetsSkipped");
  };
  const one = await skipped(1);
  assert.deepEqual([one?.status, one?.reason, one && isProblem(one)], ["True", "NotRunByGraftlet", false]);
  assert.match(one?.message ?? "", /do not run here: agents\/a0\. The node's setting daemonSets selects which run/);
  assert.match((await skipped(7))?.message ?? "", /: agents\/a0, .*, agents\/a4 and 2 more\. /);
});

test("sets no condition for a routed network, and a True condition for complete privileges", async () => {
  const whole = { messages: [], unsupported: {} };
  const known = rig("known", { isolation: () => undefined, rights: { read: async () => whole } });
  assert.match(await known.lines(), /^TargetPrivileges True, MemoryPressure/);
  assert.deepEqual((await known.target.desired(never)).absent, [
    "PodNetworkIsolated",
    "DaemonSetsSkipped",
    "KubeletReachable",
  ]);
  const unknown = rig("known", { isolation: () => undefined, rights: { read: async () => undefined } });
  assert.match(await unknown.lines(), /^MemoryPressure/);
  assert.deepEqual((await unknown.target.desired(never)).absent, [
    "PodNetworkIsolated",
    "DaemonSetsSkipped",
    "KubeletReachable",
  ]);
});

test("sets KubeletReachable once it has been checked", async () => {
  const way = { type: "KubeletReachable", status: "False", reason: "NoRoute", message: "no route" } as const;
  const tried = rig("known", { reachable: () => way });
  assert.match(await tried.lines(), /^KubeletReachable False, MemoryPressure.*Ready True$/);
  assert.deepEqual((await tried.target.desired(never)).absent, [
    "PodNetworkIsolated",
    "TargetPrivileges",
    "DaemonSetsSkipped",
  ]);
  const untried = rig("known", { reachable: () => undefined });
  assert.match(await untried.lines(), /^MemoryPressure/);
});

test("reports an unreachable target as the reason of the Ready condition, and changes no other condition", async () => {
  const link = fakeLink();
  const { target, lines } = rig("known", { link, isolation: () => isolationCondition(undefined) });
  link.cut({ reason: "HostKeyMismatch", message: "another key" });
  assert.equal(await lines(), "Ready False");
  const { verdicts, absent = [] } = await target.desired(never);
  assert.deepEqual([verdicts[0]?.reason, absent], ["HostKeyMismatch", []]);
});

test("reports a shutdown together with other problems, and instead of a lost link", async () => {
  const link = fakeLink();
  const { target, problems } = rig("known", { link, goingDown: () => true });
  const ready = async () => (await target.desired(never)).verdicts.at(-1);
  problems.push("something is wrong");
  assert.deepEqual(await ready(), {
    type: "Ready",
    status: "False",
    reason: "KubeletNotReady",
    message: "[something is wrong, node is shutting down]",
  });
  link.cut({ reason: "LinkDown", message: "it does not answer." });
  const { reason, message } = (await ready()) ?? assert.fail();
  assert.deepEqual([reason, message], ["KubeletNotReady", "node is shutting down"]);
});

test("reports LimitExceeded for a target over its budget", async () => {
  let message: string | undefined = "the target sends too much";
  const budget = { spend: () => undefined, exceeded: () => message };
  const { target } = rig("known", { host: { budget } });
  assert.deepEqual((await target.desired(never)).verdicts, [
    { type: "Ready", status: "False", reason: "LimitExceeded", message: "the target sends too much" },
  ]);
  message = undefined;
  assert.equal((await target.desired(never)).verdicts.at(-1)?.reason, "KubeletReady");
});
