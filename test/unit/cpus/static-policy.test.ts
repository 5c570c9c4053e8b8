import assert from "node:assert/strict";
import { test } from "node:test";
import { dividePod } from "../../../src/cpus/pod-assigner.ts";
import {
  type Assignments,
  type StaticPolicyOptions,
  SmtAlignmentError,
  createStaticPolicy,
  exclusiveCpuCount,
  sharedPool,
} from "../../../src/cpus/static-policy.ts";
import type { CpuTopology } from "../../../src/cpus/topology.ts";
import { formatCpus } from "../../../src/lib/cpu-set.ts";
import { assignPod, asking, cpus, machine, noOptions, podOf } from "./machines.ts";

const policyOf = (topology: CpuTopology, reserved: readonly number[], options: Partial<StaticPolicyOptions> = {}) =>
  createStaticPolicy({
    topology,
    options: { ...noOptions, ...options },
    reserved: cpus(...reserved),
    reservedMilli: reserved.length * 1000,
  });
const none: Assignments = new Map();
const shown = (own: ReadonlyMap<string, ReadonlySet<number>>) =>
  Object.fromEntries([...own].map(([name, set]) => [name, formatCpus(set)]));

test("gives exclusive CPUs only to containers that request whole CPUs", () => {
  const counts = (pod: ReturnType<typeof podOf>) => pod.spec.containers.map((each) => exclusiveCpuCount(pod, each));
  assert.deepEqual(counts(podOf("a", [asking("x", "2"), asking("y", "1500m"), asking("z", "3000m")])), [2, 0, 3]);
  const resources = { limits: { cpu: "3", memory: "1Gi" } };
  const burstable = asking("y", "1", { resources: { requests: { cpu: "1" } } });
  assert.deepEqual(counts(podOf("b", [asking("x", "2"), burstable], { resources })), [2, 0], "pod-level resources");
});

test("if the reservation is a number of CPUs, reserves CPUs of the first cores", () => {
  const topology = machine({ cores: 4, threads: 2 });
  const reservedBy = (reservedMilli: number) =>
    formatCpus(createStaticPolicy({ topology, options: noOptions, reserved: cpus(), reservedMilli }).reserved);
  assert.deepEqual([reservedBy(2000), reservedBy(500), reservedBy(2500)], ["0,4", "0", "0-1,4"]);
  assert.throws(() => reservedBy(9000), /unable to reserve the required amount of CPUs \(size of  did not equal 9\)/);
});

test("refuses reserved CPUs that are not online", () => {
  assert.throws(
    () => policyOf(machine({ cores: 2 }), [0, 5]),
    /^Error: reserved-cpus: 0,5 is not a subset of online-cpus: 0-1$/,
  );
});

test("containers reuse the CPUs of earlier init containers, but not those of sidecars", () => {
  const policy = policyOf(machine({ cores: 8 }), [0]);
  const pod = podOf("p", [asking("main", "2")], {
    initContainers: [asking("init", "3"), asking("sidecar", "1", { restartPolicy: "Always" }), asking("more", "2")],
  });
  const own = assignPod(policy, none, pod);
  assert.deepEqual(shown(own), { init: "1-3", sidecar: "1", more: "2-3", main: "2-3" });
  assert.equal(formatCpus(sharedPool(policy, new Map([["p", own]]))), "0,4-7");
});

test("a pod keeps its CPUs, and a pod that does not fit gets none", () => {
  const policy = policyOf(machine({ cores: 4 }), [0]);
  const before: Assignments = new Map([["p", new Map([["a", cpus(3)]])]]);
  const own = assignPod(policy, before, podOf("p", [asking("a", "1"), asking("b", "1")]));
  assert.deepEqual(shown(own), { a: "3", b: "1" });
  assert.throws(
    () => assignPod(policy, before, podOf("q", [asking("a", "2"), asking("b", "1")])),
    /^Error: not enough cpus available to satisfy request: requested=1, available=0$/,
  );
  assert.equal(before.size, 1);
});

test("with full-pcpus-only, assigns whole cores, excluding cores with reserved CPUs", () => {
  const policy = policyOf(machine({ cores: 4, threads: 2 }), [0], { fullCores: true });
  const ask = (cpu: string) => () => assignPod(policy, none, podOf("p", [asking("a", cpu)]));
  assert.deepEqual(shown(ask("2")()), { a: "1,5" });
  assert.throws(ask("3"), (error: Error) => {
    assert.ok(error instanceof SmtAlignmentError);
    assert.equal(error.message, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2");
    return true;
  });
  assert.throws(
    ask("8"),
    /^Error: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2$/,
  );
});

test("with full-pcpus-only, admits a running pod again after a restart even if the node is full", () => {
  const policy = policyOf(machine({ cores: 2, threads: 2 }), [0, 2], { fullCores: true });
  const pod = podOf("p", [asking("a", "2")]);
  const own = assignPod(policy, none, pod);
  assert.deepEqual(shown(assignPod(policy, new Map([["p", own]]), pod)), { a: "1,3" });
});

test("with strict-cpu-reservation, nothing runs on reserved CPUs", () => {
  const policy = policyOf(machine({ cores: 4 }), [0, 1], { strictReservation: true });
  assert.equal(formatCpus(sharedPool(policy, none)), "2-3");
  assert.equal(formatCpus(sharedPool(policyOf(machine({ cores: 4 }), [0, 1]), none)), "0-3");
});

test("divides a pod's CPUs among its containers, which reuse the CPUs of init containers but not those of sidecars", () => {
  const policy = policyOf(machine({ cores: 8 }), [0]);
  const sharing = (name: string) => ({ name, image: "i" });
  const pod = podOf("p", [asking("main", "1"), sharing("shared")], {
    initContainers: [asking("init", "4"), asking("sidecar", "1", { restartPolicy: "Always" }), sharing("late")],
    resources: { limits: { cpu: "4", memory: "8Gi" } },
  });
  const expected = { "": "1-4", init: "1-4", sidecar: "1", late: "2-4", main: "2", shared: "3-4" };
  assert.deepEqual(shown(dividePod(policy, pod, cpus(1, 2, 3, 4))), expected);
});
