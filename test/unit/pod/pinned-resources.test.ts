import assert from "node:assert/strict";
import { test } from "node:test";
import type { Container, Pod } from "../../../src/objects.ts";
import { emptySharedPool, isPinned, ownRequests } from "../../../src/pod/pinned-resources.ts";
import { asking, podOf } from "../cpus/machines.ts";

const burstable: Container = { name: "shared", image: "i", resources: { requests: { cpu: "100m" } } };
const sidecar = (container: Container): Container => ({ ...container, restartPolicy: "Always" });
const podLevel = (containers: readonly Container[], initContainers: readonly Container[] = []) =>
  podOf("p", containers, { initContainers: [...initContainers], resources: { limits: { cpu: "4", memory: "4Gi" } } });

test("Guaranteed pods can have exclusive resources; pods with pod-level resources only if the feature gate is on", () => {
  const both = (pod: Pod) => [isPinned(pod, false), isPinned(pod, true)];
  assert.deepEqual(both(podOf("p", [asking("main", "2")])), [true, true]);
  assert.deepEqual(both(podLevel([burstable])), [false, true]);
  assert.deepEqual(both(podOf("p", [burstable])), [false, false]);
});

test("a container of a pod with pod-level resources gets exclusive resources if its requests equal its limits", () => {
  const own = asking("main", "2");
  const pod = podLevel([own, burstable]);
  assert.deepEqual(ownRequests(pod, own), { cpu: "2", memory: "1Gi" });
  assert.deepEqual(ownRequests(pod, burstable), {});
  assert.deepEqual(ownRequests(pod, { ...own, resources: { limits: { cpu: "2" } } }), {}, "memory is not limited");
});

test("rejects a pod whose containers leave nothing to share, in the kubelet's words", () => {
  const problem = (pod: Pod) =>
    emptySharedPool(pod, new Map([["cpu", 4]]), (container) => {
      const { cpu } = ownRequests(pod, container);
      return new Map(cpu === undefined ? [] : [["cpu", Number(cpu)]]);
    });
  assert.equal(problem(podLevel([asking("main", "3"), burstable])), undefined);
  assert.equal(problem(podLevel([asking("main", "4")])), undefined, "nothing is shared");
  assert.equal(problem(podLevel([asking("main", "4")], [burstable])), undefined, "the init container ends before");
  const reason = "EmptyPodSharedPoolError";
  assert.deepEqual(problem(podLevel([asking("main", "4"), burstable])), {
    reason,
    message:
      "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
  });
  assert.deepEqual(problem(podLevel([asking("main", "1")], [sidecar(asking("side", "4")), burstable])), {
    reason,
    message: "pod rejected, pod has shared init containers but no cpus available for them",
  });
});
