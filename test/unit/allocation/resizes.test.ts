import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { createAllocations } from "../../../src/allocation/allocations.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type TestPod, aContainer, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";
import { countResizes, resizeConditions } from "../../../src/allocation/resize-states.ts";
import { amounts, asking, cpuOf, rig } from "./rig.ts";

test("allocates a resize that fits at once, with status and event, and emits another event once it is actuated", async () => {
  const { resize, events, woken, weighed, world, allocations, resizes, run, ask, seen, states } = rig();
  run(asking("p", "100m"), asking("q", "300m"));
  const pod = asking("p", "700m");
  await ask(pod);
  assert.deepEqual(weighed, ["p 700m beside 300m"]);
  assert.deepEqual([cpuOf(resizes.allocatedPod(pod)), states("p"), woken], ["700m", ["PodResizeInProgress"], ["p"]]);
  assert.equal(resizeConditions(resize.get("p"))[0]?.observedGeneration, pod.metadata.generation);
  const summary = `{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"700m"}}}],"generation":${pod.metadata.generation}}`;
  assert.deepEqual(events.lines, [`Normal ResizeStarted Pod resize started: ${summary}`]);
  resizes.checkProgress(pod, seen("p"));
  assert.deepEqual([states("p"), world.freed], [["PodResizeInProgress"], 0]);
  await allocations.setContainerResources("p", "c-p", amounts("700m"));
  resizes.checkProgress(pod, seen("p"));
  assert.deepEqual([states("p"), world.freed], [[], 1]);
  assert.equal(events.lines[1], `Normal ResizeCompleted Pod resize completed: ${summary}`);
  resizes.checkProgress(pod, seen("p"));
  assert.equal(events.lines.length, 2);
});

test("does not count or resize a pod that was preempted for another resize", async () => {
  const { weighed, world, resizes, run, ask } = rig();
  run(asking("p", "100m"), asking("q", "100m"), asking("v", "500m"));
  world.ends = "v";
  const ends = asking("v", "550m");
  await ask(asking("p", "300m"), asking("q", "600m"), ends);
  assert.deepEqual(weighed, ["p 300m beside 100m,500m", "q 600m beside 300m"]);
  assert.equal(cpuOf(resizes.allocatedPod(ends)), "500m");
});

test("marks a resize of a Guaranteed pod as infeasible if the CPU or memory manager has a static policy", async () => {
  const whole = (uid: string, cpu: string, memory: string) =>
    asking(uid, "", { spec: { containers: [aContainer("c", { resources: { limits: { cpu, memory } } })] } });
  for (const [manager, policy] of [
    ["cpu", 'CPU Manager policy "static"'],
    ["memory", 'Memory Manager policy "Static"'],
  ]) {
    const { run, ask, states, measured } = rig({ [manager === "cpu" ? "hasStaticCpus" : "hasStaticMemory"]: true });
    run(whole("cpu", "200m", "64Mi"), whole("memory", "200m", "64Mi"), asking("burstable", "200m"));
    for (const pod of [whole("cpu", "300m", "64Mi"), whole("memory", "200m", "128Mi"), asking("burstable", "250m")]) {
      await ask(pod);
      const why = `PodResizePending Infeasible Resize is infeasible for Guaranteed Pods alongside ${policy}`;
      assert.deepEqual(states(pod.metadata.uid), [pod.metadata.uid === manager ? why : "PodResizeInProgress"]);
    }
    assert.ok(measured.includes(`guaranteed_pod_${manager}_manager_static_policy`));
  }
});

test("marks a memory resize of a container with swap as infeasible, and does not retry it", async () => {
  const { events, store, resizes, run, decide, ask, states, weighed, measured, world, resize } = rig();
  const memory = (amount: string, restartPolicy?: string): Partial<TestPod["spec"]> => ({
    containers: [
      aContainer("c", {
        resources: { requests: { cpu: "100m", memory: amount }, limits: { memory: "1Gi" } },
        ...(restartPolicy && { resizePolicy: [{ resourceName: "memory", restartPolicy }] }),
      }),
    ],
  });
  const with64 = (uid: string, restartPolicy?: string) => asking(uid, "", { spec: memory("64Mi", restartPolicy) });
  const with128 = (uid: string, restartPolicy?: string) => asking(uid, "", { spec: memory("128Mi", restartPolicy) });
  world.swaps = true;
  run(with64("p"), with64("restarts", "RestartContainer"));
  const pod = with128("p");
  await ask(pod);
  const why = "In-place resize of containers with swap is not supported.";
  assert.deepEqual(states("p"), [`PodResizePending Infeasible ${why}`]);
  assert.match(
    events.lines[0] ?? "",
    /^Warning ResizeInfeasible Pod resize Infeasible: \{.*swap is not supported\."\}$/,
  );
  assert.equal(resizes.allocatedPod(pod).spec.containers[0]?.resources?.requests?.["memory"], "64Mi");
  assert.deepEqual([measured.at(-1), countResizes(resize.list()).infeasible], ["swap_limitation", 1]);
  await decide();
  await ask({ ...pod, metadata: { ...pod.metadata, labels: { other: "label" } } });
  assert.deepEqual(
    [events.lines.length, weighed, measured.filter((one) => one === "swap_limitation").length],
    [1, [], 1],
  );
  await ask(with128("restarts", "RestartContainer"));
  assert.deepEqual([states("restarts"), weighed.length], [["PodResizeInProgress"], 1], "it starts anew with its swap");
  store.set("p", with64("p"));
  await ask(with64("p"));
  assert.deepEqual(states("p"), [], "taken back");
  world.swaps = false;
  await ask(with128("p"));
  assert.deepEqual(states("p"), ["PodResizeInProgress"], "no container may use any");
});

test("defers a resize that does not fit, emitting one event, and allocates it once other pods are gone", async () => {
  const { events, woken, store, resizes, run, decide, ask, states } = rig();
  run(asking("p", "100m"), asking("q", "500m"));
  const pod = asking("p", "800m");
  await ask(pod);
  const why = "requested: 800, used: 500";
  assert.deepEqual([cpuOf(resizes.allocatedPod(pod)), states("p")], ["100m", [`PodResizePending Deferred ${why}`]]);
  assert.match(
    events.lines[0] ?? "",
    /^Warning ResizeDeferred Pod resize OutOfcpu: \{.*"error":"requested: 800, used: 500"\}$/,
  );
  await decide();
  assert.deepEqual([events.lines.length, woken], [1, ["p"]]);
  store.delete("q");
  await decide();
  assert.deepEqual(
    [cpuOf(resizes.allocatedPod(pod)), states("p"), woken],
    ["800m", ["PodResizeInProgress"], ["p", "p"]],
  );
});

test("frees the resources of a downsize only once it has been actuated", async () => {
  const { allocations, weighed, run, ask, decide, states } = rig();
  run(asking("p", "100m"), asking("q", "800m"));
  await ask(asking("q", "300m"), asking("p", "500m"));
  assert.deepEqual(weighed, ["q 300m beside 100m", "p 500m beside 800m"]);
  assert.match(states("p").join(), /Deferred/);
  await allocations.setContainerResources("q", "c-q", amounts("300m"));
  await decide("pod_resized");
  assert.equal(weighed.at(-1), "p 500m beside 300m");
  assert.deepEqual(states("p"), ["PodResizeInProgress"]);
});

test("checkpoints the allocation before a resize is deferred", async () => {
  const { host, allocations, run, ask } = rig();
  run(asking("p", "100m"), asking("q", "500m"));
  assert.deepEqual(host.files.changes, []);
  await ask(asking("p", "800m"));
  const again = createAllocations({
    fs: host.fs,
    rootDir: "/root",
    podCache: { get: () => undefined },
    privateColumn: aColumn,
    clock: fakeClock(),
    log: silentLog(),
  });
  await again.records.ready?.(never);
  const wish = asking("p", "800m");
  again.addPod(wish);
  assert.equal(cpuOf(again.allocatedPod(wish)), "100m");
  assert.equal(cpuOf(allocations.allocatedPod(wish)), "100m");
});

test("counts other pods' allocated resources, not their requests", async () => {
  const { weighed, run, ask } = rig();
  run(asking("p", "100m"), asking("q", "500m"));
  await ask(asking("q", "950m"));
  await ask(asking("p", "500m"));
  assert.deepEqual(weighed, ["q 950m beside 100m", "q 950m beside 100m", "p 500m beside 500m"]);
});

test("orders resizes: decreases first, then by priority, QoS class and waiting time", async () => {
  const { clock, weighed, run, ask, world, decide } = rig();
  const spec = (priority: number) => ({ spec: { priority } });
  const all = { cpu: "900m", memory: "1Mi" };
  const guaranteed = { spec: { containers: [aContainer("c", { resources: { limits: all, requests: all } })] } };
  world.refusal = { reason: "Busy", message: "not now" };
  run(...["old", "young", "dear", "less", "safe"].map((uid) => asking(uid, "200m")));
  await ask(asking("old", "300m"));
  await clock.advance(5_000);
  await ask(asking("young", "300m"));
  await ask(asking("dear", "300m", spec(5)), asking("less", "100m"), asking("safe", "", guaranteed));
  weighed.length = 0;
  await decide();
  assert.deepEqual(
    weighed.map((line) => line.split(" ")[0]),
    ["less", "dear", "safe", "old", "young"],
  );
});

test("clears a pending resize that is reverted", async () => {
  const { resizes, run, ask, states } = rig();
  run(asking("p", "100m"), asking("q", "500m"));
  await ask(asking("p", "800m"));
  assert.equal(states("p").length, 1);
  assert.equal(resizes.recordRequest(asking("p", "100m")), false);
  assert.deepEqual(states("p"), []);
});

test("decides on no resize before every pod source has reported", async () => {
  const { world, weighed, run, ask, decide } = rig();
  world.sourcesSpoke = false;
  run(asking("p", "100m"));
  await ask(asking("p", "200m"));
  assert.deepEqual(weighed, []);
  world.sourcesSpoke = true;
  await decide();
  assert.equal(weighed.length, 1);
});

test("reports a failing actuation only once until it succeeds", async () => {
  const { events, allocations, resizes, run, ask, seen, states } = rig();
  run(asking("p", "100m"));
  const pod = asking("p", "200m");
  await ask(pod);
  resizes.actuationFailed(pod, "no");
  resizes.actuationFailed(pod, "no");
  assert.deepEqual(states("p"), ["PodResizeInProgress Error no"]);
  assert.match(events.lines[1] ?? "", /^Warning ResizeError Pod resize error: \{.*"error":"no"\}$/);
  assert.equal(events.lines.length, 2);
  resizes.checkProgress(pod, seen("p"));
  assert.deepEqual(states("p"), ["PodResizeInProgress Error no"]);
  await allocations.setContainerResources("p", "c-p", amounts("200m"));
  resizes.checkProgress(pod, seen("p"));
  assert.deepEqual(states("p"), []);
});

test("replaces the generation and error of a resize in progress with those of a new request", async () => {
  const { resize, resizes, run, ask, states } = rig();
  run(asking("p", "100m"));
  const [first, second] = [asking("p", "200m"), asking("p", "300m")];
  await ask(first);
  resizes.actuationFailed(first, "no");
  await ask(second);
  assert.deepEqual(states("p"), ["PodResizeInProgress"]);
  assert.equal(resizeConditions(resize.get("p"))[0]?.observedGeneration, second.metadata.generation);
});

test("restores resize conditions after a restart without repeating events", async () => {
  const { events, resizes, run, ask, states } = rig();
  const shown = { type: "PodResizePending", status: "True", reason: "Deferred", message: "full" };
  run(asking("q", "500m"));
  const wish = asking("p", "800m");
  const condition = { ...shown, observedGeneration: wish.metadata.generation ?? 0 };
  resizes.addPod({ ...asking("p", "100m"), status: { conditions: [condition] } });
  assert.deepEqual(states("p"), ["PodResizePending Deferred full"]);
  await ask(wish);
  assert.deepEqual([states("p"), events.lines], [["PodResizePending Deferred requested: 800, used: 500"], []]);
});

test("keeps a resize pending, and retries, if the checkpoint fails", async () => {
  const { host, resizes, run, ask, decide, states } = rig();
  run(asking("p", "100m"));
  host.files.onChange(() => {
    throw new Error("no space left");
  });
  const pod = asking("p", "200m");
  await ask(pod);
  assert.deepEqual([cpuOf(resizes.allocatedPod(pod)), states("p")], ["100m", []]);
  host.files.onChange(undefined);
  await decide();
  assert.deepEqual([cpuOf(resizes.allocatedPod(pod)), states("p")], ["200m", ["PodResizeInProgress"]]);
});

test("does not resize a terminating pod", async () => {
  const { weighed, run, store, ask } = rig();
  run(asking("p", "100m"), asking("q", "100m"));
  const ending = asking("p", "200m");
  store.set("p", ending);
  await ask({ ...ending, metadata: { ...ending.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } });
  await ask(asking("q", "200m", { status: { phase: "Failed" } }));
  assert.deepEqual(weighed, []);
});

test("returns the actuated resources of a pod's running containers", () => {
  const { resizes, run, seen } = rig();
  const pod = asking("p", "100m");
  run(pod);
  assert.equal(resizes.actuatedPod(pod, seen("p")), pod);
  assert.equal(cpuOf(resizes.actuatedPod(pod, observe([], []))), "100m");
});

test("counts each requested resize once, and each deferred resize that is later accepted by its trigger", async () => {
  const { measured, resize, store, run, ask, decide } = rig();
  run(asking("p", "100m"), asking("q", "500m"));
  const wish = asking("p", "800m");
  await ask(wish);
  await ask(wish);
  assert.deepEqual(
    [measured, countResizes(resize.list())],
    [["cpu requests increase"], { deferred: 1, infeasible: 0, inProgress: 0 }],
  );
  store.delete("q");
  await decide("pods_removed");
  assert.deepEqual(
    [measured.at(-1), countResizes(resize.list())],
    ["pods_removed", { deferred: 0, infeasible: 0, inProgress: 1 }],
  );
  measured.length = 0;
  const containers = [aContainer("c", { resources: { requests: { memory: "1Mi" }, limits: { cpu: "500m" } } })];
  await ask(asking("p", "", { spec: { containers } }));
  assert.deepEqual(measured, ["memory requests add", "cpu requests remove", "cpu limits decrease"]);
});
