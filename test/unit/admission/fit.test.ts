import assert from "node:assert/strict";
import { test } from "node:test";
import { insufficientResources } from "../../../src/admission/fit.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const implicit = "deviceclass.resource.kubernetes.io/gpu.example.com";
const explicit = "example.com/gpu";
const requests = { [implicit]: "1", [explicit]: "1", cpu: "5" };

test("does not count a resource provided by a ResourceClaim against the node, regardless of the node's capacity", () => {
  const lacking = (...claimed: readonly string[]) => {
    const requestMappings = claimed.map((resourceName) => ({ containerName: "c", resourceName, requestName: "r" }));
    const status =
      claimed.length > 0 ? { extendedResourceClaimStatus: { resourceClaimName: "made", requestMappings } } : {};
    const pod = {
      ...aPod({ initContainers: [aContainer("c", { resources: { requests } })], containers: [aContainer("main")] }),
      status,
    };
    const allocatable = { cpu: "4", pods: "10", [explicit]: "0" };
    return insufficientResources({ pod, otherPods: [], node: { metadata: { name: "node" } }, allocatable }).map(
      ({ resource }) => resource,
    );
  };
  assert.deepEqual(lacking(), ["cpu", implicit, explicit]);
  assert.deepEqual(lacking(implicit), ["cpu", explicit]);
  assert.deepEqual(lacking(implicit, explicit), ["cpu"]);
});
