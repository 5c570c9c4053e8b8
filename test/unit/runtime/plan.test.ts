import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContainerState, NamespaceMode, PodSandboxState } from "../../../src/gen/cri.ts";
import { isIdle, planPod } from "../../../src/runtime/plan.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const {
  CONTAINER_RUNNING: running,
  CONTAINER_EXITED: exited,
  CONTAINER_CREATED: created,
  CONTAINER_UNKNOWN: unknown,
} = ContainerState;
const names = (containers: readonly { name: string }[]) => containers.map(({ name }) => name);

describe("the sandbox", () => {
  it("is made when there is none, and all containers with it", () => {
    const plan = planPod(aPod({ containers: [aContainer("a"), aContainer("b")] }), observe([], []));
    assert.deepEqual([plan.createSandbox, plan.attempt, plan.sandboxId], [true, 0, undefined]);
    assert.deepEqual(names(plan.start), ["a", "b"]);
  });
  it("is replaced when it is not ready, counting attempts", () => {
    const dead = aSandbox({
      state: PodSandboxState.SANDBOX_NOTREADY,
      metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: 4 },
    });
    const plan = planPod(aPod(), observe([dead], []));
    assert.deepEqual([plan.killPod, plan.createSandbox, plan.attempt, plan.sandboxId], [true, true, 5, dead.id]);
  });
  it("is replaced when two are ready, when the network mode changed, when it has no address", () => {
    assert.equal(planPod(aPod(), observe([aSandbox(), aSandbox()], [])).createSandbox, true);
    assert.equal(planPod(aPod({ hostNetwork: true }), observe([aSandbox()], [])).createSandbox, true);
    assert.equal(
      planPod(aPod(), observe([aSandbox({ network: { ip: "", additionalIps: [] } })], [])).createSandbox,
      true,
    );
    const onHost = aSandbox({
      network: { ip: "", additionalIps: [] },
      linux: {
        namespaces: {
          options: { network: NamespaceMode.NODE, pid: 0, ipc: 0, targetId: "", usernsOptions: undefined },
        },
      },
    });
    assert.equal(planPod(aPod({ hostNetwork: true }), observe([onHost], [])).createSandbox, false);
  });
  it("is not made again for a pod that never restarts and has run", () => {
    const pod = aPod({ restartPolicy: "Never" });
    const dead = aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY });
    const plan = planPod(pod, observe([dead], [aStatus(aContainer("c"), exited)]));
    assert.deepEqual([plan.killPod, plan.createSandbox, plan.start.length], [true, false, 0]);
  });
  it("is not made again under OnFailure when all have succeeded; else only the others start", () => {
    const a = aContainer("a");
    const b = aContainer("b");
    const pod = aPod({ restartPolicy: "OnFailure", containers: [a, b] });
    const dead = aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY });
    assert.equal(planPod(pod, observe([dead], [aStatus(a, exited), aStatus(b, exited)])).createSandbox, false);
    const half = planPod(pod, observe([dead], [aStatus(a, exited), aStatus(b, exited, { exitCode: 1 })]));
    assert.deepEqual([half.createSandbox, names(half.start)], [true, ["b"]]);
  });
  it("starts over from the first init container", () => {
    const pod = aPod({ initContainers: [aContainer("i1"), aContainer("i2")] });
    const plan = planPod(
      pod,
      observe([aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY })], [aStatus(aContainer("i1"), exited)]),
    );
    assert.deepEqual([names(plan.startInit), plan.start.length], [["i1"], 0]);
  });
});

describe("init containers", () => {
  const init = [aContainer("i1"), aContainer("i2")];
  const pod = aPod({ initContainers: init, restartPolicy: "OnFailure" });
  const after = (...statuses: Parameters<typeof observe>[1]) => planPod(pod, observe([aSandbox()], statuses));
  it("run one after another, then the main ones", () => {
    assert.deepEqual(names(after().startInit), ["i1"]);
    assert.equal(isIdle(after(aStatus(aContainer("i1"), running))), true);
    assert.deepEqual(names(after(aStatus(aContainer("i1"), exited)).startInit), ["i2"]);
    const done = after(aStatus(aContainer("i1"), exited), aStatus(aContainer("i2"), exited));
    assert.deepEqual([names(done.startInit), names(done.start)], [[], ["c"]]);
  });
  it("are tried again when they fail, or end the pod under Never", () => {
    const failed = aStatus(aContainer("i1"), exited, { exitCode: 1 });
    assert.deepEqual(names(after(failed).startInit), ["i1"]);
    const over = planPod({ ...pod, spec: { ...pod.spec, restartPolicy: "Never" } }, observe([aSandbox()], [failed]));
    assert.deepEqual([over.killPod, over.createSandbox, over.startInit.length], [true, false, 0]);
  });
  it("count as failed when the kernel killed them for memory, whatever their exit code", () => {
    assert.deepEqual(names(after(aStatus(aContainer("i1"), exited, { reason: "OOMKilled" })).startInit), ["i1"]);
  });
  it("do not run again once a main container runs, even when they were removed", () => {
    assert.equal(isIdle(after(aStatus(aContainer("c"), running))), true);
  });
});

describe("main containers", () => {
  const on = (policy: string, ...statuses: Parameters<typeof observe>[1]) =>
    planPod(aPod({ restartPolicy: policy }), observe([aSandbox()], statuses));
  it("are left alone while they run", () =>
    assert.equal(isIdle(on("Always", aStatus(aContainer("c"), running))), true));
  it("start again as the restart policy says", () => {
    const good = aStatus(aContainer("c"), exited);
    const bad = aStatus(aContainer("c"), exited, { exitCode: 3 });
    assert.deepEqual(
      ["Always", "OnFailure", "Never"].map((policy) => on(policy, good).start.length),
      [1, 0, 0],
    );
    assert.deepEqual(
      ["Always", "OnFailure", "Never"].map((policy) => on(policy, bad).start.length),
      [1, 1, 0],
    );
  });
  it("take the pod down when none is left to run", () => {
    const plan = on("Never", aStatus(aContainer("c"), exited));
    assert.deepEqual([plan.killPod, plan.createSandbox], [true, false]);
  });
  it("are replaced when their image changed, and only then", () => {
    const old = aStatus(aContainer("c", { image: "busybox:1" }), running);
    const plan = on("Never", old);
    assert.deepEqual(plan.kill, [
      { containerId: old.id, name: "c", message: "Container c definition changed, will be restarted" },
    ]);
    assert.deepEqual(names(plan.start), ["c"]);
    assert.equal(isIdle(on("Always", aStatus(aContainer("c", { args: ["other"] }), running))), true);
  });
  it("are killed when a probe condemns them, with its grace period, and start again unless the policy forbids it", () => {
    const probe = { exec: { command: ["x"] }, terminationGracePeriodSeconds: 7 };
    const container = aContainer("c", { livenessProbe: probe, startupProbe: { exec: { command: ["x"] } } });
    const status = aStatus(container, running);
    const condemned = (restartPolicy: string, by: "liveness" | "startup") => {
      const pod = aPod({ restartPolicy, containers: [container, aContainer("d")] });
      const plan = planPod(pod, observe([aSandbox()], [status, aStatus(aContainer("d"), running)]), {
        condemnedBy: (name, id) => (name === "c" && id === status.id ? by : undefined),
      });
      return [plan.kill, names(plan.start), plan.killPod];
    };
    const kill = (message: string, graceSeconds?: number) => [
      { containerId: status.id, name: "c", message, graceSeconds },
    ];
    assert.deepEqual(condemned("Always", "liveness"), [
      kill("Container c failed liveness probe, will be restarted", 7),
      ["c"],
      false,
    ]);
    assert.deepEqual(condemned("OnFailure", "startup"), [
      kill("Container c failed startup probe, will be restarted"),
      ["c"],
      false,
    ]);
    assert.deepEqual(condemned("Never", "liveness"), [kill("Container c failed liveness probe", 7), [], false]);
  });
  it("are killed before they start again when nobody knows whether they run", () => {
    const lost = aStatus(aContainer("c"), unknown);
    assert.equal(on("Never", lost).kill[0]?.containerId, lost.id);
  });
  it("start when they were created and never started", () =>
    assert.equal(on("Never", aStatus(aContainer("c"), created)).start.length, 1));
  it("are judged by their newest status", () => {
    const older = aStatus(aContainer("c"), running);
    assert.equal(on("Always", older, aStatus(aContainer("c"), exited)).start.length, 1);
  });
  it("do not start again in a pod that is being deleted", () => {
    const pod = aPod({}, { deletionTimestamp: "2026-01-01T00:00:00Z" });
    assert.equal(planPod(pod, observe([aSandbox()], [aStatus(aContainer("c"), exited)])).start.length, 0);
  });
});
