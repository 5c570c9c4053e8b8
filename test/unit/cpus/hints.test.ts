import assert from "node:assert/strict";
import { test } from "node:test";
import { createPodAssigner } from "../../../src/cpus/pod-assigner.ts";
import {
  type Assignments,
  type StaticPolicyOptions,
  createStaticPolicy,
  podCpuCount,
} from "../../../src/cpus/static-policy.ts";
import { formatCpus } from "../../../src/lib/cpu-set.ts";
import { numaNodes } from "../../../src/lib/numa-nodes.ts";
import type { Pod } from "../../../src/objects.ts";
import { shown } from "../topology/hints.ts";
import { type MachineDraft, asking, cpus, machine, noOptions, podOf } from "./machines.ts";
import { cpuHints } from "../../../src/cpus/pod-allocator.ts";

/** Two NUMA nodes of four CPUs; CPU 0 is reserved. */
const two: MachineDraft = { sockets: 2, cores: 4 };

function policyOf(draft: MachineDraft, options: Partial<StaticPolicyOptions> = {}) {
  const topology = machine(draft);
  return createStaticPolicy({
    topology,
    options: { ...noOptions, ...options },
    reserved: cpus(0),
    reservedMilli: 1000,
  });
}

/** Hints for the pod's first container, or for the pod. */
function hintsOf(pod: Pod, of: "container" | "pod", assigned: Assignments = new Map(), policy = policyOf(two)): string {
  const assigner = createPodAssigner(policy, assigned, pod);
  const hints = cpuHints({ policy, assigner, pod }, of === "pod" ? undefined : pod.spec.containers[0]).get("cpu");
  return hints ? hints.map(shown).join(" ") || "none" : "any";
}

test("hints NUMA nodes with enough free CPUs, and prefers hints with as few nodes as an idle machine would need", () => {
  const one = (cpu: string) => hintsOf(podOf("p", [asking("a", cpu)]), "container");
  assert.equal(one("3"), "0+ 1+ 01");
  assert.equal(one("4"), "1+ 01", "a CPU of node 0 is reserved");
  assert.equal(one("5"), "01+");
  assert.equal(one("8"), "none");
  assert.equal(one("500m"), "any", "no exclusive CPUs");
});

test("hints the NUMA nodes of a container's existing CPUs, or no node if it requests a different number", () => {
  const has: Assignments = new Map([["p", new Map([["a", cpus(5, 6)]])]]);
  assert.equal(hintsOf(podOf("p", [asking("a", "2")]), "container", has), "1+ 01");
  assert.equal(hintsOf(podOf("p", [asking("a", "3")]), "container", has), "none");
  assert.equal(hintsOf(podOf("p", [asking("a", "2")]), "pod", has), "1+ 01");
  assert.equal(hintsOf(podOf("p", [asking("a", "3")]), "pod", has), "none");
  assert.equal(hintsOf(podOf("p", [asking("a", "2"), asking("b", "1")]), "pod", has), "1+ 01", "those left of node 1");
});

test("for a pod, hints nodes that have as many free CPUs as its containers use at the same time", () => {
  const sidecar = asking("s", "1", { restartPolicy: "Always" });
  const pod = podOf("p", [asking("a", "2"), asking("b", "1")], { initContainers: [sidecar, asking("i", "4")] });
  assert.equal(podCpuCount(pod), 5);
  assert.equal(podCpuCount(podOf("p", [asking("a", "5")], { initContainers: [sidecar, asking("i", "4")] })), 6);
  assert.equal(hintsOf(pod, "pod"), "01+");
});

test("for a container after an init container, prefers the nodes of the CPUs that it can reuse", () => {
  const policy = policyOf(two);
  const init = asking("i", "2");
  const pod = podOf("p", [asking("a", "3")], { initContainers: [init] });
  const assigner = createPodAssigner(policy, new Map(), pod);
  assigner.assign(init, numaNodes([1]));
  const hints = cpuHints({ policy, assigner, pod }, pod.spec.containers[0]).get("cpu") ?? [];
  assert.deepEqual(hints.map(shown), ["1+", "01"]);
});

test("with align-by-socket, prefers all NUMA nodes of the fewest sockets needed, and takes their CPUs first", () => {
  const draft = { sockets: 2, nodes: 2, cores: 2 };
  const pod = podOf("p", [asking("a", "2")]);
  assert.equal(hintsOf(pod, "container", new Map(), policyOf(draft)).split(" ")[0], "1+");
  const bySocket = policyOf(draft, { alignBySocket: true });
  const preferred = hintsOf(pod, "container", new Map(), bySocket)
    .split(" ")
    .filter((text) => text.endsWith("+"));
  assert.deepEqual(preferred, ["1+", "2+", "3+", "01+", "23+"]);
  const taken = (policy: typeof bySocket) => {
    const of = podOf("q", [asking("a", "3")]);
    return formatCpus(createPodAssigner(policy, new Map(), of).assign(asking("a", "3"), numaNodes([1])) ?? cpus());
  };
  assert.equal(taken(bySocket), "1-3");
});

test("takes CPUs on the hint's NUMA nodes first, and on other nodes only those still missing", () => {
  const policy = policyOf(two);
  const take = (cpu: string, ...nodes: readonly number[]) => {
    const container = asking("a", cpu);
    return formatCpus(
      createPodAssigner(policy, new Map(), podOf("p", [container])).assign(container, numaNodes(nodes)) ?? cpus(),
    );
  };
  assert.equal(take("2", 0), "1-2");
  assert.equal(take("2", 1), "4-5");
  assert.equal(take("5", 0), "1-5");
  assert.equal(take("5", 1), "1,4-7");
  assert.throws(() => take("8", 1), /not enough cpus available to satisfy request: requested=4, available=3$/);
});
