import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import {
  ContainerConfig,
  ContainerState,
  CreateContainerRequest,
  PodSandboxConfig,
  RunPodSandboxRequest,
} from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { type PlegDeps, createPleg } from "../../../src/pleg/pleg.ts";
import { containerNameLabel, podNameLabel, podNamespaceLabel, podUidLabel } from "../../../src/pod/labels.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { never } from "../../fakes/signals.ts";

function rig(
  t: TestContext,
  events: boolean,
  { onReturn = () => undefined, ...over }: Partial<PlegDeps> & { readonly onReturn?: () => void } = {},
) {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock, events });
  runtime.addImage("busybox");
  const wakes: string[] = [];
  const { podCache } = createPodTable(clock);
  const column = podCache.writer;
  const log = silentLog();
  const pleg = createPleg({
    runtime,
    clock,
    log,
    ownerLabels: {},
    measures: unmeasured.pleg,
    terminationMessage: async ({ message }) => message,
    writtenMessage: async () => undefined,
    podCache: column,
    signals: { wakeWorker: { send: (uid) => void wakes.push(uid) }, retryFailedPods: { send: onReturn } },
    ...over,
  });
  const stop = new AbortController();
  const running = pleg.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
    await runtime[Symbol.asyncDispose]();
  });
  return { clock, runtime, wakes, pleg, seen: podCache.reader };
}

async function startPod(runtime: ReturnType<typeof fakeRuntime>, uid: string): Promise<string> {
  const labels = { [podUidLabel]: uid, [podNameLabel]: "p", [podNamespaceLabel]: "default" };
  const config = PodSandboxConfig.fromPartial({
    metadata: { name: "p", namespace: "default", uid, attempt: 0 },
    labels,
  });
  const { podSandboxId } = await runtime.runPodSandbox(RunPodSandboxRequest.fromPartial({ config }), never);
  const container = ContainerConfig.fromPartial({
    metadata: { name: "c", attempt: 0 },
    image: { image: "busybox" },
    command: ["sleep", "1000000"],
    labels: { ...labels, [containerNameLabel]: "c" },
  });
  const { containerId } = await runtime.createContainer(
    CreateContainerRequest.fromPartial({ podSandboxId, config: container, sandboxConfig: config }),
    never,
  );
  await runtime.startContainer(containerId, never);
  return containerId;
}

for (const events of [false, true]) {
  describe(events ? "the PLEG with runtime events" : "the PLEG without runtime events", () => {
    it("detects pods and their changes, and wakes their workers once per change", async (t) => {
      const { clock, runtime, wakes, seen } = rig(t, events);
      await clock.advance(1_500);
      const id = await startPod(runtime, "u1");
      await clock.advance(1_500);
      assert.equal(seen.get("u1")?.containers[0]?.state, ContainerState.CONTAINER_RUNNING);
      assert.ok(wakes.length > 0);
      wakes.length = 0;
      await clock.advance(60_000);
      assert.deepEqual(wakes, []);
      runtime.exitContainer(id, 3);
      await clock.advance(1_500);
      assert.equal(seen.get("u1")?.containers[0]?.exitCode, 3);
      assert.deepEqual(wakes, ["u1"]);
    });

    it("forgets a pod that is gone, and wakes its worker", async (t) => {
      const { clock, runtime, wakes, seen } = rig(t, events);
      const id = await startPod(runtime, "u1");
      await clock.advance(1_500);
      const sandbox = seen.get("u1")?.sandboxes[0]?.id ?? "";
      wakes.length = 0;
      await runtime.removeContainer(id, never);
      await runtime.stopPodSandbox(sandbox, never);
      await runtime.removePodSandbox(sandbox, never);
      await clock.advance(31_000);
      assert.equal(seen.get("u1"), undefined);
      assert.ok(wakes.includes("u1"));
    });

    it("does not wake a worker that has inspected its pod already", async (t) => {
      const { clock, runtime, wakes, pleg } = rig(t, events);
      await clock.advance(1_500);
      await startPod(runtime, "u1");
      const looked = await pleg.inspect("u1", never);
      assert.equal(looked.containers.length, 1);
      wakes.length = 0;
      await clock.advance(35_000);
      assert.deepEqual(wakes, []);
    });

    it("inspects a pod again after a second when an inspection has failed, whether the pod is new or has exited", async (t) => {
      const { clock, runtime, seen } = rig(t, events);
      const id = await startPod(runtime, "u1");
      runtime.failNext("containerStatus", new Error("shim disconnected"), 2);
      await clock.advance(0);
      assert.equal(seen.get("u1"), undefined);
      await clock.advance(3_500);
      assert.equal(seen.get("u1")?.containers[0]?.state, ContainerState.CONTAINER_RUNNING);
      runtime.failNext("podSandboxStatus", new Error("shim disconnected"), 2);
      runtime.exitContainer(id, 4);
      await clock.advance(3_500);
      assert.equal(seen.get("u1")?.containers[0]?.exitCode, 4);
    });

    it("inspects at most twenty pods concurrently", async (t) => {
      const { clock, runtime, seen } = rig(t, events);
      await clock.advance(1_500);
      const release = runtime.hold("podSandboxStatus");
      for (let pod = 0; pod < 30; pod += 1) await startPod(runtime, `u${pod}`);
      await clock.advance(1_500);
      assert.equal(runtime.calls.filter(({ verb }) => verb === "podSandboxStatus").length, 20);
      release();
      await clock.advance(1_500);
      assert.equal(seen.list().length, 30);
    });

    it("the PLEG is unhealthy after three minutes without a relist, and recovers", async (t) => {
      const { clock, runtime, pleg } = rig(t, events);
      await clock.advance(1_500);
      runtime.goDown();
      await clock.advance(60_000);
      assert.equal(pleg.unhealthy(), undefined);
      await clock.advance(150_000);
      assert.match(
        pleg.unhealthy() ?? "",
        /^PLEG is not healthy: pleg was last seen active 3m\d+(\.\d+)?s ago; threshold is 3m0s$/,
      );
      runtime.comeUp();
      await clock.advance(5_000);
      assert.equal(pleg.unhealthy(), undefined);
    });

    it("reports a stalled sync loop after 30 s of downtime plus the timeout, but not before the first response", async (t) => {
      const { clock, runtime, pleg } = rig(t, events);
      runtime.goDown();
      await clock.advance(400_000);
      assert.equal(pleg.isStalled(300_000), false);
      runtime.comeUp();
      await clock.advance(5_000);
      runtime.goDown();
      await clock.advance(300_000);
      assert.equal(pleg.isStalled(300_000), false);
      await clock.advance(35_000);
      assert.equal(pleg.isStalled(300_000), true);
      assert.equal(pleg.isStalled(600_000), false);
      runtime.comeUp();
      await clock.advance(5_000);
      assert.equal(pleg.isStalled(300_000), false);
    });
  });
}

describe("runtime events in the PLEG", () => {
  it("runtime events reduce the relist frequency", async (t) => {
    const { clock, runtime } = rig(t, true);
    await clock.advance(2_000);
    const before = runtime.calls.length;
    await clock.advance(60_000);
    assert.ok(runtime.calls.length - before <= 3 * 2, `${runtime.calls.length - before} calls in a minute`);
  });

  it("events of containers that a worker has created and inspected, or removed, trigger nothing", async (t) => {
    const { clock, runtime, pleg, seen } = rig(t, true);
    await clock.advance(2_000);
    const id = await startPod(runtime, "u1");
    await clock.advance(100);
    await pleg.inspect("u1", never);
    const asked = () => runtime.calls.filter(({ verb }) => verb.startsWith("list") || verb.endsWith("Status")).length;
    const before = asked();
    await clock.advance(5_000);
    assert.equal(asked(), before);
    runtime.exitContainer(id, 0);
    await clock.advance(2_000);
    const sandbox = seen.get("u1")?.sandboxes[0]?.id ?? "";
    await runtime.removeContainer(id, never);
    await runtime.removePodSandbox(sandbox, never);
    await pleg.inspect("u1", never);
    const removed = asked();
    await clock.advance(5_000);
    assert.equal(asked(), removed);
  });

  it("events of uninspected containers trigger an inspection after a second", async (t) => {
    const { clock, runtime, seen, wakes } = rig(t, true);
    await clock.advance(2_000);
    const id = await startPod(runtime, "u1");
    await clock.advance(900);
    assert.equal(seen.get("u1"), undefined);
    await clock.advance(200);
    assert.equal(seen.get("u1")?.containers.length, 1);
    wakes.length = 0;
    await runtime.removeContainer(id, never);
    await clock.advance(1_100);
    assert.deepEqual([seen.get("u1")?.containers.length, wakes], [0, ["u1"]]);
  });

  it("resubscribes to events when the stream ends, and relists to find missed events", async (t) => {
    const streams: string[] = [];
    const measures = {
      ...unmeasured.pleg,
      eventStreamOpened: () => void streams.push("began"),
      eventStreamFailed: () => void streams.push("broke"),
    };
    let returns = 0;
    const { clock, runtime, seen } = rig(t, true, { measures, onReturn: () => void (returns += 1) });
    await clock.advance(2_000);
    runtime.goDown();
    await clock.advance(1_000);
    assert.equal(returns, 0);
    runtime.comeUp();
    await clock.advance(1_000);
    assert.ok(returns >= 1, "what waits for it goes on within a second");
    await startPod(runtime, "u2");
    await clock.advance(3_000);
    assert.ok(seen.get("u2"));
    const told = returns;
    await clock.advance(60_000);
    assert.equal(returns, told, "not while it only goes on answering");
    assert.deepEqual(
      [streams[0], streams.at(-1), new Set(streams.slice(1, -1))],
      ["began", "began", new Set(["broke"])],
    );
  });
});

describe("inspection of a pod", () => {
  it("requests statuses of known containers concurrently with the listing, and again only those that differ from it", async (t) => {
    const { clock, runtime, pleg } = rig(t, false);
    const id = await startPod(runtime, "u1");
    const asked = (verb: string) => runtime.calls.filter((call) => call.verb === verb).length;
    await pleg.inspect("u1", never);
    assert.deepEqual([asked("containerStatus"), asked("podSandboxStatus")], [1, 1]);
    const release = runtime.hold("listContainers");
    const second = pleg.inspect("u1", never, { sandboxes: [], containers: ["made-elsewhere"] });
    await clock.advance(0);
    // The listing has not answered yet; an ID that the runtime does not know is no failure.
    assert.deepEqual([asked("containerStatus"), asked("podSandboxStatus")], [3, 2]);
    runtime.exitContainer(id, 7);
    release();
    assert.equal((await second).containers[0]?.exitCode, 7);
    assert.equal(asked("containerStatus"), 4);
  });

  it("after an exit event, reads the termination message concurrently with the runtime's status", async (t) => {
    const reads: string[] = [];
    const { clock, runtime, seen } = rig(t, true, {
      writtenMessage: async ({ id }) => (reads.push(id), "out of coffee"),
      terminationMessage: async (_status, _signal, written) => written ?? "read afterwards",
    });
    const id = await startPod(runtime, "u1");
    await clock.advance(1_500);
    assert.deepEqual(reads, []);
    const release = runtime.hold("listContainers");
    runtime.exitContainer(id, 1);
    await clock.advance(0);
    assert.deepEqual(reads, [id]);
    release();
    await clock.advance(1_500);
    assert.equal(seen.get("u1")?.containers[0]?.message, "out of coffee");
  });
});

describe("observations by actors other than the PLEG", () => {
  it("an observation by another actor is cached unless a newer one is known, and wakes no worker", async (t) => {
    const { clock, runtime, wakes, pleg, seen } = rig(t, false);
    await startPod(runtime, "u1");
    await clock.advance(10);
    const looked = await pleg.inspect("u1", never);
    const older = { ...looked, containers: [], observedAt: looked.observedAt - 1 };
    pleg.recordObservation(older);
    assert.equal(seen.get("u1")?.containers.length, 1);
    pleg.recordObservation({ ...older, uid: "u2" });
    assert.deepEqual([seen.get("u2")?.sandboxes, wakes], [looked.sandboxes, []]);
  });
});

describe("the PLEG with a slow runtime", () => {
  it("one slow pod does not block the relist, and is inspected again until the runtime responds", async (t) => {
    const stuck = Promise.withResolvers<string>();
    const { clock, runtime, wakes, pleg, seen } = rig(t, false, {
      terminationMessage: async ({ labels }) => (labels[podUidLabel] === "u1" ? stuck.promise : ""),
    });
    await clock.advance(0);
    runtime.exitContainer(await startPod(runtime, "u1"), 1);
    await clock.advance(4_000);
    await startPod(runtime, "u2");
    await clock.advance(4_000);
    assert.ok(seen.get("u2"), "a relist waits 5 s for a pod");
    assert.deepEqual(
      [seen.get("u1"), pleg.needsInspection("u1"), pleg.needsInspection("u2")],
      [undefined, true, false],
    );
    await clock.advance(300_000);
    assert.equal(pleg.unhealthy(), undefined);
    stuck.resolve("");
    await clock.advance(0);
    assert.equal(seen.get("u1")?.containers[0]?.exitCode, 1);
    assert.equal(pleg.needsInspection("u1"), false);
    assert.ok(wakes.includes("u1"));
  });

  it("repeats a list call that timed out", async (t) => {
    const { clock, runtime, seen } = rig(t, false);
    await clock.advance(0);
    await startPod(runtime, "u1");
    const release = runtime.hold("listPodSandbox");
    const lists = () => runtime.calls.filter(({ verb }) => verb === "listPodSandbox").length;
    const before = lists();
    await clock.advance(15_000);
    assert.deepEqual([lists() - before, seen.get("u1")], [1, undefined]);
    await clock.advance(3_000);
    assert.equal(lists() - before, 2);
    release();
    await clock.advance(0);
    assert.ok(seen.get("u1"));
  });

  it("forgets a slow pod that disappears meanwhile", async (t) => {
    const { clock, runtime, pleg } = rig(t, false);
    runtime.failNext("containerStatus", new Error("broken"), 5);
    const id = await startPod(runtime, "u1");
    await clock.advance(1_500);
    assert.equal(pleg.needsInspection("u1"), true);
    const [sandbox] = await runtime.listPodSandbox(undefined, never);
    runtime.exitContainer(id, 0);
    await runtime.removeContainer(id, never);
    await runtime.stopPodSandbox(sandbox?.id ?? "", never);
    await runtime.removePodSandbox(sandbox?.id ?? "", never);
    await clock.advance(2_000);
    assert.equal(pleg.needsInspection("u1"), false);
  });
});
