import assert from "node:assert/strict";
import { test } from "node:test";
import type { Resources } from "../../../src/objects.ts";
import {
  amountsOf,
  effectiveResources,
  combineResources,
  parseResourcesAnnotation,
  resourcesAnnotationValue,
  resourcesOf,
  sameResources,
  withResources,
} from "../../../src/pod/pod-resources.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const small: Resources = { requests: { cpu: "100m", memory: "64Mi" }, limits: { cpu: "200m", memory: "128Mi" } };
const large: Resources = { requests: { cpu: "300m", memory: "64Mi" }, limits: { cpu: "1", memory: "256Mi" } };

test("resources are compared by amount, and absent resources are equal to empty ones", () => {
  assert.equal(sameResources({ requests: { cpu: "1" } }, { requests: { cpu: "1000m" }, limits: {} }), true);
  assert.equal(sameResources({ limits: { memory: "1Gi" } }, { limits: { memory: "1024Mi" } }), true);
  assert.equal(sameResources(undefined, {}), true);
  assert.equal(sameResources({ requests: { cpu: "1" } }, { limits: { cpu: "1" } }), false);
  assert.equal(sameResources({ requests: { cpu: "1" } }, { requests: { cpu: "1", memory: "1Mi" } }), false);
});

test("withResources replaces a pod's resources, and returns the same pod if they are equal", () => {
  const pod = aPod({ containers: [aContainer("a", { resources: large }), aContainer("b")] });
  const given = { containers: { a: small, b: {}, gone: large } };
  const changed = withResources(pod, given);
  assert.deepEqual(
    changed.spec.containers.map(({ resources }) => resources),
    [small, undefined],
  );
  assert.equal(withResources(changed, given), changed);
  assert.equal(withResources(pod, resourcesOf(pod.spec)), pod);
});

test("keeps resources that cannot be resized; covers init containers and pod-level resources", () => {
  const claims = [{ name: "gpu" }];
  const spec = {
    initContainers: [aContainer("i", { resources: { ...large, claims } })],
    resources: large,
  };
  const changed = withResources(aPod(spec), { containers: { i: small }, pod: small });
  assert.deepEqual(changed.spec.initContainers?.[0]?.resources, { ...small, claims });
  assert.deepEqual(changed.spec.resources, small);
  assert.equal("resources" in withResources(aPod({ resources: large }), { containers: {}, pod: {} }).spec, false);
});

test("a container without a limit gets the pod-level one", () => {
  const whole = { limits: { cpu: "2", memory: "1Gi" } };
  assert.deepEqual(effectiveResources({ requests: { cpu: "1", "example.com/x": "1" } }, whole), {
    requests: { cpu: "1" },
    limits: { cpu: "2", memory: "1Gi" },
  });
  assert.deepEqual(effectiveResources({ limits: { cpu: "1", memory: "0" } }, whole).limits, {
    cpu: "1",
    memory: "1Gi",
  });
  assert.deepEqual(amountsOf(effectiveResources(undefined, undefined)), {
    cpuRequest: 0,
    cpuLimit: 0,
    memoryRequest: 0,
    memoryLimit: 0,
  });
});

test("mixedResources takes CPU and memory from different specs", () => {
  assert.deepEqual(amountsOf(combineResources(small, large)), {
    cpuRequest: 100,
    cpuLimit: 200,
    memoryRequest: 64 * 2 ** 20,
    memoryLimit: 256 * 2 ** 20,
  });
});

test("parses the resources annotation; an invalid one is ignored", () => {
  const pod = aPod({ resources: large });
  const container = aContainer("c", { resources: { ...small, claims: [{ name: "x" }] } });
  assert.deepEqual(parseResourcesAnnotation(resourcesAnnotationValue(pod, container)), { own: small, whole: large });
  assert.deepEqual(parseResourcesAnnotation(resourcesAnnotationValue(aPod(), aContainer("c"))), { own: {} });
  for (const torn of [undefined, "", "{", "7", "null"]) assert.equal(parseResourcesAnnotation(torn), undefined);
  assert.deepEqual(parseResourcesAnnotation('{"requests":{"cpu":"much","memory":5},"limits":[]}'), {
    own: { requests: {}, limits: {} },
  });
});
