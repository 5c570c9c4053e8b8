import assert from "node:assert/strict";
import { test } from "node:test";
import { createPreemption, type AdmissionRequirement, victimsFor } from "../../../src/admission/preemption.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { PodSpec } from "../../../src/objects.ts";
import type { WorkerView } from "../../../src/state/pod-table.ts";
import { createSignals } from "../../../src/state/signals.ts";
import { aColumn } from "../../fakes/state.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";

type Amounts = Readonly<Record<string, string>>;

const holding = (uid: string, requests: Amounts, limits: Amounts = {}, more: Partial<PodSpec> = {}): TestPod =>
  aPod({ containers: [aContainer("c", { resources: { requests, limits } })], ...more }, { uid, name: uid });
const guaranteed = (uid: string, amounts: Amounts, more: Partial<PodSpec> = {}) => holding(uid, amounts, amounts, more);
const critical = aPod(
  {},
  { uid: "critical", name: "critical", annotations: { "kubernetes.io/config.source": "file" } },
);
const cpu = (quantity: number): AdmissionRequirement => ({ resource: "cpu", quantity });

function chosen(
  others: readonly TestPod[],
  needs: readonly AdmissionRequirement[],
  pod = critical,
): readonly string[] | readonly AdmissionRequirement[] {
  const victims = victimsFor(pod, others, needs);
  return "unmet" in victims ? victims.unmet : victims.pods.map(({ metadata }) => metadata.uid);
}

test("preempts pods of lower QoS classes first, and of higher ones only for what is still missing", () => {
  const others = [
    guaranteed("safe", { cpu: "1", memory: "1Gi" }),
    holding("burst", { cpu: "500m" }),
    holding("idle", {}),
  ];
  assert.deepEqual(chosen(others, [cpu(400)]), ["burst"]);
  assert.deepEqual(
    chosen(others, [cpu(600)]),
    ["safe"],
    "as few as may be: with the guaranteed one the other need not go",
  );
  assert.deepEqual(chosen(others, [cpu(1_200)]), ["burst", "safe"]);
  assert.deepEqual(chosen(others, [{ resource: "pods", quantity: 1 }]), ["idle"]);
  assert.deepEqual(chosen(others, [cpu(2_000)]), [cpu(500)]);
});

test("preempts as few pods of a class as possible: the closest fit first, and the smaller pod on a tie", () => {
  const others = [
    holding("small", { cpu: "100m" }),
    holding("large", { cpu: "900m" }),
    holding("right", { cpu: "300m" }),
    holding("heavy", { cpu: "300m", memory: "1Gi" }),
  ];
  assert.deepEqual(chosen(others, [cpu(250)]), ["right"]);
  assert.deepEqual(chosen(others, [cpu(1_100)]), ["large", "right"]);
  assert.deepEqual(chosen(others, [cpu(250), { resource: "memory", quantity: 2 ** 20 }]), ["heavy"]);
});

test("counts a pod's overhead as freed only for resources that its containers request", () => {
  const overhead = { cpu: "250m" };
  assert.deepEqual(chosen([holding("idle", {}, {}, { overhead })], [cpu(100)]), [cpu(100)]);
  assert.deepEqual(chosen([holding("burst", { cpu: "100m" }, {}, { overhead })], [cpu(300)]), ["burst"]);
});

test("preempts critical pods only for pods of a higher priority", () => {
  const system = (priority?: number) => guaranteed("system", { cpu: "1" }, priority === undefined ? {} : { priority });
  assert.deepEqual(chosen([system(2_000_000_000)], [cpu(100)]), [cpu(100)]);
  const node = aPod({ priority: 2_000_001_000 });
  assert.deepEqual(chosen([system(2_000_000_000)], [cpu(100)], node), ["system"]);
  assert.deepEqual(chosen([system(2_000_001_000)], [cpu(100)], node), [cpu(100)]);
  assert.deepEqual(chosen([system()], [cpu(100)]), ["system"]);
});

test("uses the QoS class in the pod's status, not the one that its resized resources would give", () => {
  const shown = { ...guaranteed("g", { cpu: "1", memory: "1Gi" }), status: { qosClass: "Burstable" } };
  assert.deepEqual(chosen([shown, guaranteed("h", { cpu: "1", memory: "1Mi" })], [cpu(100)]), ["g"]);
});

/** Preemption of pods that end when the test says so. */
function rig() {
  const clock = fakeClock();
  const events = eventLines();
  const ends = new Map<string, () => void>();
  const counted: string[] = [];
  const worker = aColumn<WorkerView>({
    a: { phase: "syncing", pod: undefined },
    b: { phase: "syncing", pod: undefined },
  });
  const signals = createSignals();
  signals.terminatePod.subscribe(
    (uid) => void ends.set(uid, () => worker.set(uid, { phase: "terminated", pod: undefined })),
  );
  const makeRoom = createPreemption({
    worker,
    signals,
    events,
    measures: { ...unmeasured, preempted: (resource) => void counted.push(resource) },
    clock,
    log: silentLog(),
  });
  const stop = new AbortController();
  let answer: unknown = "waits";
  const ask = (others: readonly TestPod[], requested: number) => {
    const short = [{ resource: "cpu", requested, used: 4_000, capacity: 4_000 }];
    void makeRoom(critical, others, short, stop.signal).then(
      (rejection) => (answer = rejection),
      () => (answer = "aborted"),
    );
  };
  return { ask, clock, counted, ends, events, stop, answer: () => answer };
}

test("admission waits until the preempted pods have ended; event and metric are recorded", async () => {
  const { ask, answer, clock, counted, ends, events } = rig();
  ask([holding("a", { cpu: "1" }), holding("b", { cpu: "1" })], 1_500);
  await clock.advance(0);
  assert.deepEqual([[...ends.keys()].sort(), answer()], [["a", "b"], "waits"]);
  ends.get("a")?.();
  await clock.advance(0);
  assert.deepEqual([answer(), counted], ["waits", ["cpu"]]);
  ends.get("b")?.();
  await clock.advance(0);
  assert.deepEqual([answer(), counted], [undefined, ["cpu", "cpu"]]);
  const line = "Warning Preempting Preempted in order to admit critical pod";
  assert.deepEqual(events.lines, [line, line]);
});

test("a preempted pod that does not end delays admission by at most 1.5 times its grace period", async () => {
  const { ask, answer, clock, counted, events } = rig();
  ask([holding("a", { cpu: "1" }, {}, { terminationGracePeriodSeconds: 20 })], 1_000);
  await clock.advance(29_900);
  assert.equal(answer(), "waits");
  await clock.advance(200);
  assert.deepEqual([answer(), counted], [undefined, []]);
  assert.match(events.lines[1] ?? "", /^Warning ExceededGracePeriod Container runtime did not kill the pod/);
});

test("preemption is aborted when the node stops", async () => {
  const { ask, answer, clock, stop } = rig();
  ask([holding("a", { cpu: "1" })], 1_000);
  stop.abort();
  await clock.advance(0);
  assert.equal(answer(), "aborted");
});

test("preempts nothing and rejects the pod if preemption cannot free enough", async () => {
  const { ask, answer, clock, ends, events } = rig();
  ask([holding("a", { cpu: "1" })], 1_500);
  await clock.advance(0);
  assert.deepEqual(answer(), {
    reason: "UnexpectedAdmissionError",
    message:
      "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]",
  });
  assert.deepEqual([ends.size, events.lines], [0, []]);
});
