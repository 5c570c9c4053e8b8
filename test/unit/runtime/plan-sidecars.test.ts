import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { FatalProbeKind } from "../../../src/runtime/ports.ts";
import { ContainerState, PodSandboxState } from "../../../src/gen/cri.ts";
import { planPod } from "../../../src/runtime/plan.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { stepLines } from "./step-lines.ts";

const {
  CONTAINER_RUNNING: running,
  CONTAINER_EXITED: exited,
  CONTAINER_CREATED: created,
  CONTAINER_UNKNOWN: unknown,
} = ContainerState;
const plan = (...given: Parameters<typeof planPod>) => stepLines(planPod(...given));
const inSandbox = (...steps: readonly string[]) => ["use sandbox 0", ...steps];
const probe = { exec: { command: ["x"] } };
const sidecar = (name: string, more = {}) => aContainer(name, { restartPolicy: "Always", ...more });

describe("starts and restarts of sidecars", () => {
  const pod = aPod({
    restartPolicy: "Never",
    initContainers: [aContainer("i1"), sidecar("s1"), aContainer("i2"), sidecar("s2")],
  });
  const after = (...statuses: Parameters<typeof observe>[1]) => plan(pod, observe([aSandbox()], statuses));
  const i1 = aStatus(aContainer("i1"), exited);
  const s1 = aStatus(sidecar("s1"), running);
  const i2 = aStatus(aContainer("i2"), exited);
  const s2 = aStatus(sidecar("s2"), running);
  const c = aStatus(aContainer("c"), running);

  it("sidecars start in order, each as soon as the one before it runs", () => {
    assert.deepEqual(after(), inSandbox("start init i1"));
    assert.deepEqual(after(i1), inSandbox("start init s1"));
    assert.deepEqual(after(i1, s1), inSandbox("start init i2"));
    assert.deepEqual(after(i1, s1, i2), inSandbox("start init s2"));
    assert.deepEqual(after(i1, s1, i2, s2), inSandbox("start c"));
    assert.deepEqual(after(i1, s1, i2, s2, c), []);
  });
  it("sidecars always restart, regardless of the pod's policy, before and after the main containers end", () => {
    const over = aStatus(sidecar("s1"), exited);
    assert.deepEqual(after(i1, over), inSandbox("start init s1"));
    assert.deepEqual(after(i1, over, aStatus(aContainer("i2"), running)), inSandbox("start init s1"));
    assert.deepEqual(after(i1, over, i2, s2, c), inSandbox("start init s1"));
    assert.deepEqual(after(i1, aStatus(sidecar("s1"), created), i2, s2, c), inSandbox("start init s1"));
  });
  it("sidecars start again if the runtime lost them, unlike init containers", () => {
    assert.deepEqual(after(c), inSandbox("start init s1", "start init s2"));
  });
  it("sidecars do not keep the pod running or restart once the main containers are done", () => {
    // Only running containers show that the pod was initialized; the end of the main containers is seen in the phase before.
    assert.deepEqual(after(aStatus(sidecar("s1"), exited), s2, aStatus(aContainer("c"), exited)), ["kill pod"]);
  });
  it("sidecars in unknown state are killed before being replaced", () => {
    const lost = aStatus(sidecar("s1"), unknown);
    const text = 'kill s1: Init container is in "unknown" state, try killing it before restart';
    assert.deepEqual(after(i1, lost, i2, s2, c), [text, ...inSandbox("start init s1")]);
  });
  it("sidecars are replaced if their image changed, even with restartPolicy Never", () => {
    const old = aStatus(sidecar("s2", { image: "busybox:1" }), running);
    const text = "kill s2: Init container s2 definition changed";
    assert.deepEqual(after(i1, s1, i2, old, c), [text, ...inSandbox("start init s2")]);
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
  const after = (
    statuses: Parameters<typeof observe>[1],
    started: readonly string[],
    condemned: Readonly<Record<string, FatalProbeKind>> = {},
  ) =>
    plan(pod, observe([aSandbox()], statuses), {
      hasStarted: (_name, id) => started.includes(id),
      failedProbe: (_name, id) => condemned[id],
    });

  it("sidecars make the next one wait for their startup probe", () => {
    assert.deepEqual(after([s1], []), []);
    assert.deepEqual(after([s1], [s1.id]), inSandbox("start init s2"));
  });
  it("sidecars restart after a failed startup probe, and block the start of everything after them", () => {
    assert.deepEqual(after([s1], [], { [s1.id]: "startup" }), [
      "kill s1: Init container s1 failed startup probe (3 s)",
      ...inSandbox("start init s1"),
    ]);
  });
  it("sidecars restart after a failed liveness probe without blocking those after them", () => {
    assert.deepEqual(after([s1, s2], [s1.id], { [s2.id]: "liveness" }), [
      "kill s2: Init container s2 failed liveness probe (4 s)",
      ...inSandbox("start init s2", "start c"),
    ]);
  });
});

describe("ephemeral containers", () => {
  const pod = aPod({ ephemeralContainers: [aContainer("e1"), aContainer("e2")] });
  const c = aStatus(aContainer("c"), running);
  const started = (...statuses: Parameters<typeof observe>[1]) => plan(pod, observe([aSandbox()], statuses));
  it("ephemeral containers start once in an existing sandbox, regardless of their exit code", () => {
    assert.deepEqual(started(c), inSandbox("start ephemeral e1", "start ephemeral e2"));
    const failed = aStatus(aContainer("e1"), exited, { exitCode: 1 });
    assert.deepEqual(started(c, failed), inSandbox("start ephemeral e2"));
  });
  it("ephemeral containers start if they were created and never started, because graftlet stopped in between", () => {
    const runs = [aStatus(aContainer("e1"), created), aStatus(aContainer("e2"), exited)];
    assert.deepEqual(started(c, ...runs), inSandbox("start ephemeral e1"));
  });
  it("ephemeral containers do not wait for init containers, and do not start in a sandbox being replaced", () => {
    const waiting = { ...pod, spec: { ...pod.spec, initContainers: [aContainer("i")] } };
    const all = inSandbox("start ephemeral e1", "start ephemeral e2", "start init i");
    assert.deepEqual(plan(waiting, observe([aSandbox()], [])), all);
    assert.deepEqual(plan(pod, observe([], [])), ["run sandbox 0", "start c in it"]);
    const over = { ...pod, spec: { ...pod.spec, restartPolicy: "Never" } };
    assert.deepEqual(plan(over, observe([aSandbox()], [aStatus(aContainer("c"), exited)])), ["kill pod"]);
  });
});

describe("container restart policies", () => {
  const rule = (action: string, operator: string, ...values: number[]) => ({
    action,
    exitCodes: { operator, values },
  });
  const starts = (container: Parameters<typeof aContainer>[1], exitCode: number, restartPolicy = "Never") => {
    const own = aContainer("c", container);
    const pod = aPod({ restartPolicy, containers: [own, aContainer("other")] });
    const seen = observe([aSandbox()], [aStatus(own, exited, { exitCode }), aStatus(aContainer("other"), running)]);
    return plan(pod, seen).includes("start c");
  };
  it("container restart policies override the pod's", () => {
    assert.deepEqual([starts({}, 1), starts({ restartPolicy: "OnFailure" }, 1)], [false, true]);
    assert.deepEqual(
      [starts({ restartPolicy: "OnFailure" }, 0), starts({ restartPolicy: "Always" }, 0)],
      [false, true],
    );
    assert.equal(starts({ restartPolicy: "Never" }, 1, "Always"), false);
  });
  it("container restart policies have exit code rules, of which the first match applies", () => {
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
  it("container restart policies decide whether a container killed by a probe and a failed init container restart", () => {
    const own = aContainer("c", { restartPolicy: "Never", livenessProbe: probe });
    const killed = plan(aPod({ containers: [own, aContainer("d")] }), observe([aSandbox()], [aStatus(own, running)]), {
      failedProbe: () => "liveness",
    });
    assert.deepEqual(killed, ["kill c: Container c failed liveness probe", ...inSandbox("start d")]);
    const init = aContainer("i", { restartPolicy: "Never", restartPolicyRules: [rule("Restart", "In", 42)] });
    const failed = (exitCode: number) =>
      plan(aPod({ initContainers: [init] }), observe([aSandbox()], [aStatus(init, exited, { exitCode })]));
    assert.deepEqual([failed(42), failed(43)], [inSandbox("start init i"), ["kill pod"]]);
  });
  it("container restart policies do not restart succeeded containers in a new sandbox", () => {
    const a = aContainer("a", { restartPolicy: "OnFailure" });
    const b = aContainer("b");
    const dead = aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY });
    const seen = observe([dead], [aStatus(a, exited), aStatus(b, exited)]);
    assert.deepEqual(plan(aPod({ containers: [a, b] }), seen).slice(1), ["run sandbox 1", "start b in it"]);
  });
  it("container restart policies may restart the whole pod, removing the triggering container last", () => {
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
      aStatus(aContainer("i"), exited, { id: "i before" }),
      aStatus(aContainer("i"), exited, { id: "i" }),
      aStatus(sidecar("s"), running, { id: "s" }),
      aStatus(aContainer("b"), running, { id: "b" }),
      aStatus(asking, exited, { id: "earlier" }),
      aStatus(asking, exited, { id: "a", exitCode: 9 }),
    ];
    const steps = plan(pod, observe([aSandbox()], statuses), { restartAll: true });
    assert.deepEqual(steps, ["reset earlier", "reset b", "reset i", "reset i before", "reset s", "reset a"]);
    assert.deepEqual(plan(pod, observe([aSandbox()], [])), inSandbox("start init i"));
  });
});
