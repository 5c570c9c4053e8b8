import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContainerState, NamespaceMode, PodSandboxState } from "../../../src/gen/cri.ts";
import { planPod } from "../../../src/runtime/plan.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { stepLines } from "./step-lines.ts";

const {
  CONTAINER_RUNNING: running,
  CONTAINER_EXITED: exited,
  CONTAINER_CREATED: created,
  CONTAINER_UNKNOWN: unknown,
} = ContainerState;
const { SANDBOX_NOTREADY: notReady } = PodSandboxState;
const plan = (...given: Parameters<typeof planPod>) => stepLines(planPod(...given));

describe("planning a pod's sandbox", () => {
  const dead = aSandbox({ state: notReady, metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: 4 } });
  const isReplaced = (steps: readonly string[]) => steps[0] === "kill pod: sandbox changed";
  it("creates a missing sandbox and starts all containers", () => {
    const pod = aPod({ containers: [aContainer("a"), aContainer("b")] });
    assert.deepEqual(plan(pod, observe([], [])), ["run sandbox 0", "start a in it", "start b in it"]);
  });
  it("replaces a sandbox that is not ready, with the next attempt", () => {
    assert.deepEqual(plan(aPod(), observe([dead], [])), [
      "kill pod: sandbox changed",
      "run sandbox 5",
      "start c in it",
    ]);
  });
  it("emits no SandboxChanged event if only containers of the pod are left", () => {
    assert.deepEqual(plan(aPod(), observe([], [aStatus(aContainer("c"), running)])), [
      "kill pod",
      "run sandbox 0",
      "start c in it",
    ]);
  });
  it("replaces the sandbox if two are ready, the network mode changed, or it has no address", () => {
    assert.ok(isReplaced(plan(aPod(), observe([aSandbox(), aSandbox()], []))));
    assert.ok(isReplaced(plan(aPod({ hostNetwork: true }), observe([aSandbox()], []))));
    assert.ok(isReplaced(plan(aPod(), observe([aSandbox({ network: { ip: "", additionalIps: [] } })], []))));
    const onHost = aSandbox({
      network: { ip: "", additionalIps: [] },
      linux: {
        namespaces: {
          options: { network: NamespaceMode.NODE, pid: 0, ipc: 0, targetId: "", usernsOptions: undefined },
        },
      },
    });
    assert.deepEqual(plan(aPod({ hostNetwork: true }), observe([onHost], [])), ["use sandbox 0", "start c"]);
  });
  it("does not re-create the sandbox of a pod with restartPolicy Never that has run", () => {
    const pod = aPod({ restartPolicy: "Never" });
    assert.deepEqual(plan(pod, observe([dead], [aStatus(aContainer("c"), exited)])), ["kill pod"]);
  });
  it("with OnFailure, re-creates the sandbox only for containers that have not succeeded", () => {
    const a = aContainer("a");
    const b = aContainer("b");
    const pod = aPod({ restartPolicy: "OnFailure", containers: [a, b] });
    assert.deepEqual(plan(pod, observe([dead], [aStatus(a, exited), aStatus(b, exited)])), ["kill pod"]);
    const half = observe([dead], [aStatus(a, exited), aStatus(b, exited, { exitCode: 1 })]);
    assert.deepEqual(plan(pod, half).slice(1), ["run sandbox 5", "start b in it"]);
  });
  it("with Never, replaces the sandbox only if no container ever started", () => {
    const pod = aPod({ restartPolicy: "Never" });
    const unstarted = aStatus(aContainer("c"), created);
    assert.deepEqual(plan(pod, observe([dead], [], [unstarted])), [
      "kill pod: sandbox changed",
      "run sandbox 5",
      "start c in it",
    ]);
    assert.deepEqual(plan(pod, observe([dead], [], [unstarted, aStatus(aContainer("d"), exited)])), ["kill pod"]);
  });
  it("in a new sandbox, starts from the first init container and removes old init containers", () => {
    const pod = aPod({ initContainers: [aContainer("i1"), aContainer("i2")] });
    const runs = [aStatus(aContainer("c"), exited), aStatus(aContainer("i1"), exited, { id: "old" })];
    assert.deepEqual(plan(pod, observe([dead], runs)), [
      "kill pod: sandbox changed",
      "remove old",
      "run sandbox 5",
      "start init i1 in it",
    ]);
  });
});

describe("planning init containers", () => {
  const init = [aContainer("i1"), aContainer("i2")];
  const pod = aPod({ initContainers: init, restartPolicy: "OnFailure" });
  const after = (...statuses: Parameters<typeof observe>[1]) => plan(pod, observe([aSandbox()], statuses));
  it("runs init containers one after another, then the main containers", () => {
    assert.deepEqual(after(), ["use sandbox 0", "start init i1"]);
    assert.deepEqual(after(aStatus(aContainer("i1"), running)), []);
    assert.deepEqual(after(aStatus(aContainer("i1"), exited)), ["use sandbox 0", "start init i2"]);
    const done = after(aStatus(aContainer("i1"), exited), aStatus(aContainer("i2"), exited));
    assert.deepEqual(done, ["use sandbox 0", "start c"]);
  });
  it("restarts failed init containers, or ends the pod with Never", () => {
    const failed = aStatus(aContainer("i1"), exited, { exitCode: 1 });
    assert.deepEqual(after(failed), ["use sandbox 0", "start init i1"]);
    const over = { ...pod, spec: { ...pod.spec, restartPolicy: "Never" } };
    assert.deepEqual(plan(over, observe([aSandbox()], [failed])), ["kill pod"]);
  });
  it("counts OOM-killed init containers as failed, regardless of their exit code", () => {
    const killed = aStatus(aContainer("i1"), exited, { reason: "OOMKilled" });
    const always = { ...pod, spec: { ...pod.spec, restartPolicy: "Always" } };
    assert.deepEqual(plan(always, observe([aSandbox()], [killed])), ["use sandbox 0", "start init i1"]);
  });
  it("decides restarts by exit code, even after an OOM kill", () => {
    const killed = (exitCode: number) => aStatus(aContainer("i1"), exited, { reason: "OOMKilled", exitCode });
    assert.deepEqual(after(killed(0)), ["kill pod"]);
    assert.deepEqual(after(killed(137)), ["use sandbox 0", "start init i1"]);
  });
  it("does not run init containers again once a main container runs, even if they were removed", () => {
    assert.deepEqual(after(aStatus(aContainer("c"), running)), []);
  });
  it("removes all but the newest exited init container, in a pass that has other steps", () => {
    const runs = ["newest", "older", "oldest"].map((id, at) =>
      aStatus(aContainer("i1"), exited, { id, createdAt: BigInt(-at) }),
    );
    assert.deepEqual(after(...runs), ["remove older", "remove oldest", "use sandbox 0", "start init i2"]);
    assert.deepEqual(after(...runs, aStatus(aContainer("c"), running)), []);
  });
});

describe("leftover containers of an earlier sandbox", () => {
  const side = aContainer("s", { restartPolicy: "Always" });
  const pod = aPod({ initContainers: [aContainer("i1"), side, aContainer("i2")] });
  const i1 = aStatus(aContainer("i1"), exited);
  const plans = (own: Parameters<typeof observe>[1], earlier: Parameters<typeof observe>[1]) =>
    plan(pod, observe([aSandbox()], own, earlier)).filter((step) => !step.startsWith("remove"));
  const oldInit2 = aStatus(aContainer("i2"), exited);
  it("leftover containers do not let a later init container start early", () => {
    assert.deepEqual(plans([], [oldInit2]), ["use sandbox 0", "start init i1"]);
    assert.deepEqual(plans([aStatus(aContainer("i1"), running)], [oldInit2]), []);
    assert.deepEqual(plans([i1], [oldInit2]), ["use sandbox 0", "start init s"]);
    const again = [i1, aStatus(side, running)];
    assert.deepEqual(plans(again, [oldInit2]), ["use sandbox 0", "start init i2"]);
    const done = [...again, aStatus(aContainer("i2"), exited)];
    assert.deepEqual(plans(done, [oldInit2]), ["use sandbox 0", "start c"]);
  });
  it("leftover containers do not fail the pod by their exit code", () => {
    const failed = aStatus(aContainer("i2"), exited, { exitCode: 1 });
    const once = { ...pod, spec: { ...pod.spec, restartPolicy: "OnFailure" } };
    const steps = plan(once, observe([aSandbox()], [aStatus(aContainer("i1"), running)], [failed]));
    assert.deepEqual(steps, []);
  });
  it("leftover containers do not let a sidecar start before the init containers ahead of it", () => {
    assert.deepEqual(plans([aStatus(aContainer("i1"), running)], [aStatus(side, exited)]), []);
  });
  it("leftover containers do not let a main container that was created but never started start early", () => {
    assert.deepEqual(plans([aStatus(aContainer("i1"), running)], [aStatus(aContainer("c"), created)]), []);
  });
  it("leftover containers are removed in a pass that has other steps", () => {
    const old = aStatus(aContainer("i2"), exited, { id: "old" });
    assert.deepEqual(plan(pod, observe([aSandbox()], [i1], [old])), ["remove old", "use sandbox 0", "start init s"]);
  });
});

describe("planning main containers", () => {
  const on = (policy: string, ...statuses: Parameters<typeof observe>[1]) =>
    plan(aPod({ restartPolicy: policy }), observe([aSandbox()], statuses));
  const started = ["use sandbox 0", "start c"];
  it("does not touch running containers", () => assert.deepEqual(on("Always", aStatus(aContainer("c"), running)), []));
  it("restarts exited containers according to the restart policy", () => {
    const good = aStatus(aContainer("c"), exited);
    const bad = aStatus(aContainer("c"), exited, { exitCode: 3 });
    assert.deepEqual(
      ["Always", "OnFailure", "Never"].map((policy) => on(policy, good)),
      [started, ["kill pod"], ["kill pod"]],
    );
    assert.deepEqual(
      ["Always", "OnFailure", "Never"].map((policy) => on(policy, bad)),
      [started, started, ["kill pod"]],
    );
  });
  it("kills the pod if no container is left to run", () => {
    assert.deepEqual(on("Never", aStatus(aContainer("c"), exited)), ["kill pod"]);
  });
  it("replaces a container only if its image changed", () => {
    const old = aStatus(aContainer("c", { image: "busybox:1" }), running);
    assert.deepEqual(on("Never", old), ["kill c: Container c definition changed, will be restarted", ...started]);
    assert.deepEqual(on("Always", aStatus(aContainer("c", { args: ["other"] }), running)), []);
  });
  it("kills a container with a failed probe within the probe's grace period, and restarts it if the policy allows", () => {
    const probe = { exec: { command: ["x"] }, terminationGracePeriodSeconds: 7 };
    const container = aContainer("c", { livenessProbe: probe, startupProbe: { exec: { command: ["x"] } } });
    const status = aStatus(container, running);
    const condemned = (restartPolicy: string, by: "liveness" | "startup") => {
      const pod = aPod({ restartPolicy, containers: [container, aContainer("d")] });
      return plan(pod, observe([aSandbox()], [status, aStatus(aContainer("d"), running)]), {
        failedProbe: (name, id) => (name === "c" && id === status.id ? by : undefined),
      });
    };
    assert.deepEqual(condemned("Always", "liveness"), [
      "kill c: Container c failed liveness probe, will be restarted (7 s)",
      ...started,
    ]);
    assert.deepEqual(condemned("OnFailure", "startup"), [
      "kill c: Container c failed startup probe, will be restarted",
      ...started,
    ]);
    assert.deepEqual(condemned("Never", "liveness"), ["kill c: Container c failed liveness probe (7 s)"]);
  });
  it("kills a container in unknown state before restarting it", () => {
    const text = 'kill c: Container is in "unknown" state, try killing it before restart';
    assert.deepEqual(on("Never", aStatus(aContainer("c"), unknown)), [text, ...started]);
  });
  it("starts a container that was created and never started", () =>
    assert.deepEqual(on("Never", aStatus(aContainer("c"), created)), started));
  it("decides by the newest status of a container", () => {
    const older = aStatus(aContainer("c"), running);
    assert.deepEqual(on("Always", older, aStatus(aContainer("c"), exited)), started);
  });
  it("does not restart containers in a pod that is being deleted", () => {
    const pod = aPod({}, { deletionTimestamp: "2026-01-01T00:00:00Z" });
    assert.deepEqual(plan(pod, observe([aSandbox()], [aStatus(aContainer("c"), exited)])), ["kill pod"]);
  });
});
