import assert from "node:assert/strict";
import { test } from "node:test";
import { allContainers, isMirrorPod, isSidecar, isStaticPod } from "../../../src/pod/containers.ts";
import { qosClass } from "../../../src/pod/qos.ts";
import { canonicalBytes, quantityMilli, quantityNumber, quantityValue } from "../../../src/pod/quantity.ts";
import { containerReference, nodeReference, podReference } from "../../../src/pod/reference.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

test("quantities are parsed in every notation and rounded up", () => {
  const cases: [string, number][] = [
    ["1", 1],
    ["100m", 0.1],
    ["1.5Gi", 1.5 * 2 ** 30],
    ["2k", 2000],
    ["1e3", 1000],
    ["1E3", 1000],
    ["1E", 1e18],
    ["5u", 5e-6],
    ["+3", 3],
    ["-1", -1],
    [".5", 0.5],
    ["3.", 3],
  ];
  for (const [text, value] of cases) assert.equal(quantityNumber(text), value, text);
  assert.equal(quantityValue("1500m"), 2);
  assert.equal(quantityMilli("0.3"), 300);
  assert.equal(quantityMilli("1u"), 1);
  for (const bad of ["", "abc", "1 Gi", "1KB", "--1"])
    assert.throws(() => quantityNumber(bad), { code: "invalid_argument" }, bad);
});

test("bytes are formatted in the largest unit without remainder", () => {
  const gibibyte = 2 ** 30;
  const binary = [0, 1000, 1024, 1536, 10 * 2 ** 20, gibibyte + 1024, 3 * gibibyte].map((one) =>
    canonicalBytes(one, 1024),
  );
  assert.deepEqual(binary, ["0", "1000", "1Ki", "1536", "10Mi", "1048577Ki", "3Gi"]);
  assert.deepEqual(
    [1024, 1000, 2e9, 1_500_000].map((one) => canonicalBytes(one, 1000)),
    ["1024", "1k", "2G", "1500k"],
  );
});

test("the QoS class follows requests and limits of all containers", () => {
  const given = (requests?: Record<string, string>, limits?: Record<string, string>) =>
    aContainer("c", { resources: { ...(requests && { requests }), ...(limits && { limits }) } });
  const full = { cpu: "1", memory: "1Gi" };
  assert.equal(qosClass({ containers: [given()] }), "BestEffort");
  assert.equal(qosClass({ containers: [given({ "ephemeral-storage": "1Gi" })] }), "BestEffort");
  assert.equal(qosClass({ containers: [given(full, full)] }), "Guaranteed");
  assert.equal(qosClass({ containers: [given(undefined, full)] }), "Guaranteed");
  assert.equal(qosClass({ containers: [given({ cpu: "1000m", memory: "1024Mi" }, full)] }), "Guaranteed");
  assert.equal(qosClass({ containers: [given(full, full)], initContainers: [given()] }), "Burstable");
  assert.equal(qosClass({ containers: [given({ cpu: "1" })] }), "Burstable");
});

test("allContainers returns each container with the name of its list", () => {
  const pod = aPod({
    initContainers: [aContainer("i", { restartPolicy: "Always" })],
    ephemeralContainers: [aContainer("e")],
  });
  assert.deepEqual(
    allContainers(pod).map(({ kind, container }) => `${kind}/${container.name}`),
    ["initContainers/i", "containers/c", "ephemeralContainers/e"],
  );
  assert.equal(pod.spec.initContainers?.every(isSidecar), true);
});

test("static and mirror pods are identified by annotation", () => {
  const annotated = (annotations: Record<string, string>) => aPod({}, { annotations });
  assert.equal(isStaticPod(annotated({ "kubernetes.io/config.source": "file" })), true);
  assert.equal(isStaticPod(annotated({ "kubernetes.io/config.source": "api" })), false);
  assert.equal(isMirrorPod(annotated({ "kubernetes.io/config.mirror": "hash" })), true);
});

test("events refer to their object by kind, namespace, name and UID", () => {
  const pod = aPod({ initContainers: [aContainer("i")] }, { resourceVersion: "7" });
  assert.deepEqual(podReference(pod), {
    kind: "Pod",
    apiVersion: "v1",
    namespace: "default",
    name: "p",
    uid: "uid-1",
    resourceVersion: "7",
  });
  assert.equal(containerReference(pod, "c").fieldPath, "spec.containers{c}");
  assert.equal(containerReference(pod, "i").fieldPath, "spec.initContainers{i}");
  assert.equal(containerReference(pod, "none").fieldPath, undefined);
  assert.deepEqual(nodeReference("n"), { kind: "Node", apiVersion: "v1", name: "n" });
});
