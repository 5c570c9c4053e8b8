import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatMap, orderPodIPs, podField, resourceField } from "../../../src/pod/fields.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const labels = { app: "web", "a.b/c": "x" };
const pod = aPod({ serviceAccountName: "sa", nodeName: "n1" }, { labels, annotations: { note: 'say "hi"\n' } });
const context = { hostIPs: ["192.0.2.1", "2001:db8::1"], podIPs: ["fd00::2", "10.0.0.2"] };

describe("fields of the downward API", () => {
  const cases: readonly (readonly [path: string, value: string])[] = [
    ["metadata.name", "p"],
    ["metadata.namespace", "default"],
    ["metadata.uid", "uid-1"],
    ["metadata.labels['app']", "web"],
    ["metadata.labels['a.b/c']", "x"],
    ["metadata.labels['none']", ""],
    ["metadata.annotations['note']", 'say "hi"\n'],
    ["metadata.labels", 'a.b/c="x"\napp="web"'],
    ["metadata.annotations", 'note="say \\"hi\\"\\n"'],
    ["spec.nodeName", "n1"],
    ["spec.serviceAccountName", "sa"],
    ["status.hostIP", "192.0.2.1"],
    ["status.hostIPs", "192.0.2.1,2001:db8::1"],
    ["status.podIP", "10.0.0.2"],
    ["status.podIPs", "10.0.0.2,fd00::2"],
  ];
  for (const [path, value] of cases)
    it(`resolves fieldRef ${path}`, () => assert.equal(podField(pod, path, context), value));
  it("rejects fields that the downward API does not have", () => {
    assert.throws(() => podField(pod, "spec.containers", context), /unsupported fieldPath: spec.containers/);
  });
  it("orders addresses by the family of the node's primary address", () => {
    assert.deepEqual(orderPodIPs(["10.0.0.2", "fd00::2"], ["2001:db8::1"]), ["fd00::2", "10.0.0.2"]);
    assert.deepEqual(orderPodIPs(["fd00::2"], []), ["fd00::2"]);
  });
  it("quotes labels and annotations like Go", () => {
    assert.equal(formatMap({ k: "tab\t\\ \u0001 é \u200b 😀" }), 'k="tab\\t\\\\ \\x01 é \\u200b 😀"');
  });
});

describe("container resources of the downward API", () => {
  const web = aContainer("web", {
    resources: { requests: { cpu: "250m", memory: "100Mi" }, limits: { cpu: "1500m" } },
  });
  const init = aContainer("init", { resources: { limits: { memory: "1Gi", "hugepages-2Mi": "4Mi" } } });
  const two = aPod({ containers: [web], initContainers: [init] });
  const allocatable = { cpu: "3800m", memory: "8000000Ki", "ephemeral-storage": "50Gi" };
  const cases: readonly (readonly [
    resource: string,
    divisor: string | undefined,
    containerName: string | undefined,
    value: string,
  ])[] = [
    ["limits.cpu", undefined, undefined, "2"],
    ["limits.cpu", "1m", undefined, "1500"],
    ["limits.cpu", "0", undefined, "2"],
    ["requests.cpu", undefined, undefined, "1"],
    ["requests.cpu", "1m", "init", "0"],
    ["requests.memory", "1Mi", undefined, "100"],
    ["limits.memory", undefined, undefined, "8192000000"],
    ["limits.memory", "1Mi", "init", "1024"],
    ["limits.ephemeral-storage", "1Gi", undefined, "50"],
    ["limits.hugepages-2Mi", "1Mi", "init", "4"],
    ["limits.hugepages-2Mi", undefined, undefined, "0"],
    ["requests.ephemeral-storage", undefined, undefined, "0"],
  ];
  for (const [resource, divisor, containerName, value] of cases) {
    it(`resolves ${resource} of container ${containerName ?? "web"} to ${value} with divisor ${divisor ?? "1"}`, () => {
      const selector = {
        resource,
        ...(divisor !== undefined && { divisor }),
        ...(containerName !== undefined && { containerName }),
      };
      assert.equal(resourceField(two, selector, "web", allocatable), value);
    });
  }
  it("defaults a missing limit to the pod-level one, then to the node's allocatable", () => {
    const resources = { limits: { cpu: "3", memory: "64Mi", "ephemeral-storage": "1Gi" } };
    const pod = { ...two, spec: { ...two.spec, resources } };
    const limit = (resource: string) => resourceField(pod, { resource: `limits.${resource}` }, "web", allocatable);
    assert.deepEqual(["cpu", "memory", "ephemeral-storage"].map(limit), ["2", "67108864", "53687091200"]);
  });
  it("names an unknown container or resource", () => {
    assert.throws(
      () => resourceField(two, { resource: "limits.gpu" }, "web", {}),
      /unsupported container resource : limits.gpu/,
    );
    assert.throws(
      () => resourceField(two, { resource: "limits.cpu", containerName: "x" }, "web", {}),
      /container x not found/,
    );
  });
});
