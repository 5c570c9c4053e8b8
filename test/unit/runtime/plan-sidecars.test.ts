import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContainerState, PodSandboxState } from "../../../src/gen/cri.ts";
import type { CondemningProbe } from "../../../src/pipeline.ts";
import { isIdle, planPod } from "../../../src/runtime/plan.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const {
  CONTAINER_RUNNING: running,
  CONTAINER_EXITED: exited,
  CONTAINER_CREATED: created,
  CONTAINER_UNKNOWN: unknown,
} = ContainerState;
const names = (containers: readonly { name: string }[]) => containers.map(({ name }) => name);
const probe = { exec: { command: ["x"] } };
const sidecar = (name: string, more = {}) => aContainer(name, { restartPolicy: "Always", ...more });

describe("sidecars", () => {
  const pod = aPod({
    restartPolicy: "Never",
    initContainers: [aContainer("i1"), sidecar("s1"), aContainer("i2"), sidecar("s2")],
  });
  const after = (...statuses: Parameters<typeof observe>[1]) => {
    const plan = planPod(pod, observe([aSandbox()], statuses));
    return [names(plan.startInit), names(plan.start)];
  };
  const i1 = aStatus(aContainer("i1"), exited);
  const s1 = aStatus(sidecar("s1"), running);
  const i2 = aStatus(aContainer("i2"), exited);
  const s2 = aStatus(sidecar("s2"), running);
  const c = aStatus(aContainer("c"), running);

  it("start in their turn, and the next one follows while they run", () => {
    assert.deepEqual(after(), [["i1"], []]);
    assert.deepEqual(after(i1), [["s1"], []]);
    assert.deepEqual(after(i1, s1), [["i2"], []]);
    assert.deepEqual(after(i1, s1, i2), [["s2"], []]);
    assert.deepEqual(after(i1, s1, i2, s2), [[], ["c"]]);
    assert.equal(isIdle(planPod(pod, observe([aSandbox()], [i1, s1, i2, s2, c]))), true);
  });
  it("start again whenever they end, whatever the pod's policy, before and after the main containers do", () => {
    const over = aStatus(sidecar("s1"), exited);
    assert.deepEqual(after(i1, over), [["s1"], []]);
    assert.deepEqual(after(i1, over, aStatus(aContainer("i2"), running)), [["s1"], []]);
    assert.deepEqual(after(i1, over, i2, s2, c), [["s1"], []]);
    assert.deepEqual(after(i1, aStatus(sidecar("s1"), created), i2, s2, c), [["s1"], []]);
  });
  it("start again when the runtime has lost them, unlike init containers", () => {
    assert.deepEqual(after(c), [["s1", "s2"], []]);
  });
  it("keep no pod alive: when the main containers are done all is over, and none starts again", () => {
    const plan = planPod(
      pod,
      observe([aSandbox()], [aStatus(sidecar("s1"), exited), s2, aStatus(aContainer("c"), exited)]),
    );
    // Only what runs says that the pod was initialized: the main containers' end is told by the phase before.
    assert.deepEqual([plan.killPod, names(plan.startInit)], [true, []]);
  });
  it("of an unknown state are killed before another takes their place", () => {
    const lost = aStatus(sidecar("s1"), unknown);
    const plan = planPod(pod, observe([aSandbox()], [i1, lost, i2, s2, c]));
    assert.deepEqual(
      [plan.kill.map(({ message }) => message), names(plan.startInit)],
      [['Init container is in "unknown" state, try killing it before restart'], ["s1"]],
    );
  });
  it("are replaced when their image changed, also under Never", () => {
    const old = aStatus(sidecar("s2", { image: "busybox:1" }), running);
    const plan = planPod(pod, observe([aSandbox()], [i1, s1, i2, old, c]));
    assert.deepEqual(
      [plan.kill, names(plan.startInit)],
      [[{ containerId: old.id, name: "s2", message: "Init container s2 definition changed" }], ["s2"]],
    );
  });
});

describe("sidecars and their probes", () => {
  const init = [
    sidecar("s1", { startupProbe: { ...probe, terminationGracePeriodSeconds: 3 } }),
    sidecar("s2", { livenessProbe: { ...probe, terminationGracePeriodSeconds: 4 } }),
  ];
  const pod = aPod({ initContainers: init });
  const s1 = aStatus(sidecar("s1"), running);
  const s2 = aStatus(sidecar("s2"), running);
  const plan = (
    statuses: Parameters<typeof observe>[1],
    started: readonly string[],
    condemned: Readonly<Record<string, CondemningProbe>> = {},
  ) => {
    const { kill, startInit, start } = planPod(pod, observe([aSandbox()], statuses), {
      hasStarted: (_name, id) => started.includes(id),
      condemnedBy: (_name, id) => condemned[id],
    });
    return [kill.map(({ message, graceSeconds }) => `${message} ${graceSeconds}`), names(startInit), names(start)];
  };

  it("the next one waits for the startup probe", () => {
    assert.deepEqual(plan([s1], []), [[], [], []]);
    assert.deepEqual(plan([s1], [s1.id]), [[], ["s2"], []]);
  });
  it("one that fails its startup probe starts again, and nobody after it", () => {
    assert.deepEqual(plan([s1], [], { [s1.id]: "startup" }), [
      ["Init container s1 failed startup probe 3"],
      ["s1"],
      [],
    ]);
  });
  it("one that is found dead starts again; whose turn has come starts all the same", () => {
    const text = "Init container s2 failed liveness probe 4";
    assert.deepEqual(plan([s1, s2], [s1.id], { [s2.id]: "liveness" }), [[text], ["s2"], ["c"]]);
  });
});

describe("ephemeral containers", () => {
  const pod = aPod({ ephemeralContainers: [aContainer("e1"), aContainer("e2")] });
  const c = aStatus(aContainer("c"), running);
  const started = (...statuses: Parameters<typeof observe>[1]) =>
    names(planPod(pod, observe([aSandbox()], statuses)).startEphemeral);
  it("start once in a pod that has its sandbox, however they end", () => {
    assert.deepEqual(started(c), ["e1", "e2"]);
    assert.deepEqual(started(c, aStatus(aContainer("e1"), exited, { exitCode: 1 })), ["e2"]);
  });
  it("start when they were created and never started: graftlet ended in between", () => {
    assert.deepEqual(started(c, aStatus(aContainer("e1"), created), aStatus(aContainer("e2"), exited)), ["e1"]);
  });
  it("do not wait for init containers, and start in no sandbox that goes", () => {
    const waiting = { ...pod, spec: { ...pod.spec, initContainers: [aContainer("i")] } };
    assert.deepEqual(names(planPod(waiting, observe([aSandbox()], [])).startEphemeral), ["e1", "e2"]);
    assert.deepEqual(names(planPod(pod, observe([], [])).startEphemeral), []);
    const over = planPod(
      { ...pod, spec: { ...pod.spec, restartPolicy: "Never" } },
      observe([aSandbox()], [aStatus(aContainer("c"), exited)]),
    );
    assert.equal(over.killPod, true);
  });
});

describe("restart policies of containers", () => {
  const rule = (action: string, operator: string, ...values: number[]) => ({
    action,
    exitCodes: { operator, values },
  });
  const starts = (container: Parameters<typeof aContainer>[1], exitCode: number, restartPolicy = "Never") => {
    const own = aContainer("c", container);
    const pod = aPod({ restartPolicy, containers: [own, aContainer("other")] });
    const seen = observe([aSandbox()], [aStatus(own, exited, { exitCode }), aStatus(aContainer("other"), running)]);
    return planPod(pod, seen).start.length === 1;
  };
  it("win over the pod's", () => {
    assert.deepEqual([starts({}, 1), starts({ restartPolicy: "OnFailure" }, 1)], [false, true]);
    assert.deepEqual(
      [starts({ restartPolicy: "OnFailure" }, 0), starts({ restartPolicy: "Always" }, 0)],
      [false, true],
    );
    assert.equal(starts({ restartPolicy: "Never" }, 1, "Always"), false);
  });
  it("have rules by exit codes, of which the first that matches counts", () => {
    const ruled = (...restartPolicyRules: ReturnType<typeof rule>[]) => ({
      restartPolicy: "Never",
      restartPolicyRules,
    });
    assert.deepEqual(
      [42, 43].map((code) => starts(ruled(rule("Restart", "In", 42)), code)),
      [true, false],
    );
    assert.deepEqual(
      [42, 43].map((code) => starts(ruled(rule("Restart", "NotIn", 42)), code)),
      [false, true],
    );
    assert.equal(starts(ruled(rule("Surprise", "In", 42), rule("Restart", "In", 42)), 42), false);
  });
  it("decide whether a probe's victim and a failed init container come back", () => {
    const own = aContainer("c", { restartPolicy: "Never", livenessProbe: probe });
    const killed = planPod(aPod({ containers: [own] }), observe([aSandbox()], [aStatus(own, running)]), {
      condemnedBy: () => "liveness",
    });
    assert.deepEqual([killed.kill[0]?.message, killed.start], ["Container c failed liveness probe", []]);
    const init = aContainer("i", { restartPolicy: "Never", restartPolicyRules: [rule("Restart", "In", 42)] });
    const failed = (exitCode: number) =>
      planPod(aPod({ initContainers: [init] }), observe([aSandbox()], [aStatus(init, exited, { exitCode })]));
    assert.deepEqual([names(failed(42).startInit), failed(43).killPod], [["i"], true]);
  });
  it("leave out of a new sandbox what has succeeded for good", () => {
    const a = aContainer("a", { restartPolicy: "OnFailure" });
    const b = aContainer("b");
    const dead = aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY });
    const plan = planPod(aPod({ containers: [a, b] }), observe([dead], [aStatus(a, exited), aStatus(b, exited)]));
    assert.deepEqual(names(plan.start), ["b"]);
  });
  it("may take all containers away, whose end asks for it last, and start the pod anew", () => {
    const asking = aContainer("a", {
      restartPolicy: "Never",
      restartPolicyRules: [rule("RestartAllContainers", "In", 9)],
    });
    const pod = aPod({
      restartPolicy: "Never",
      initContainers: [aContainer("i"), sidecar("s")],
      containers: [asking, aContainer("b")],
    });
    const statuses = [
      aStatus(aContainer("i"), exited, { id: "i" }),
      aStatus(sidecar("s"), running, { id: "s" }),
      aStatus(aContainer("b"), running, { id: "b" }),
      aStatus(asking, exited, { id: "earlier" }),
      aStatus(asking, exited, { id: "a", exitCode: 9 }),
    ];
    const plan = planPod(pod, observe([aSandbox()], statuses), { restartAll: true });
    assert.deepEqual(
      [plan.reset.map(({ id }) => id), plan.killPod, plan.start, plan.startInit, isIdle(plan)],
      [["earlier", "b", "i", "s", "a"], false, [], [], false],
    );
    assert.deepEqual(names(planPod(pod, observe([aSandbox()], [])).startInit), ["i"]);
  });
});
