import assert from "node:assert/strict";
import { test } from "node:test";
import { checkUse, claimUsesOf, claimsOf } from "../../../src/dra/claim-names.ts";
import type { Pod, ResourceClaim } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const claims = [
  { name: "named", resourceClaimName: "shared" },
  { name: "created", resourceClaimTemplateName: "template" },
];
const withStatus = (pod: Pod, status: Pod["status"]): Pod => ({ ...pod, status });

test("names the claims of a pod: by name, from a template, and for extended resources", () => {
  const pod = withStatus(aPod({ resourceClaims: claims }), {
    resourceClaimStatuses: [{ name: "created", resourceClaimName: "pod-created-x" }],
    extendedResourceClaimStatus: { resourceClaimName: "extended", requestMappings: [] },
  });
  assert.deepEqual(claimsOf(pod), [
    { podClaimName: "named", name: "shared", fromTemplate: false },
    { podClaimName: "created", name: "pod-created-x", fromTemplate: true },
    { podClaimName: undefined, name: "extended", fromTemplate: false },
  ]);
});

test("omits a claim that was deliberately not created, and reports a claim that has not been created yet", () => {
  const pod = aPod({ resourceClaims: claims });
  const without = withStatus(pod, { resourceClaimStatuses: [{ name: "created" }] });
  assert.deepEqual(
    claimsOf(without).map(({ name }) => name),
    ["shared"],
  );
  const { namespace, name } = pod.metadata;
  assert.throws(() => claimsOf(pod), { message: `pod "${namespace}/${name}": ResourceClaim not created yet` });
  assert.throws(() => claimsOf(aPod({ resourceClaims: [{ name: "x" }] })), /none of the supported fields are set$/);
});

test("lists the requests that a container uses, with the extended resources that it requests", () => {
  const container = aContainer("c", {
    resources: {
      claims: [{ name: "named", request: "gpu" }],
      requests: { "example.com/gpu": "1", "example.com/nic": "0" },
    },
  });
  const mapping = (containerName: string, resourceName: string, requestName: string) => ({
    containerName,
    resourceName,
    requestName,
  });
  const pod = withStatus(aPod({ resourceClaims: claims.slice(0, 1), containers: [container, aContainer("other")] }), {
    extendedResourceClaimStatus: {
      resourceClaimName: "extended",
      requestMappings: [
        mapping("c", "example.com/gpu", "container-0-request-0"),
        mapping("c", "example.com/nic", "container-0-request-1"),
        mapping("other", "example.com/gpu", "container-1-request-0"),
      ],
    },
  });
  assert.deepEqual(claimUsesOf(pod, container), [
    { podClaimName: "named", name: "shared", request: "gpu" },
    { podClaimName: undefined, name: "extended", request: "container-0-request-0" },
  ]);
});

test("a pod may use only claims that are reserved for it, and must own a claim made from a template", () => {
  const pod = aPod();
  const { uid, name, namespace } = pod.metadata;
  const reserved = { reservedFor: [{ name, resource: "pods", uid }] };
  const claim = (status: object, owner?: string): ResourceClaim => ({
    metadata: {
      name: "claim",
      namespace,
      uid: "claim-uid",
      ownerReferences: owner ? [{ apiVersion: "v1", kind: "Pod", name, uid: owner, controller: true }] : [],
    },
    spec: {},
    status,
  });
  checkUse(pod, { fromTemplate: false }, claim(reserved));
  checkUse(pod, { fromTemplate: true }, claim(reserved, uid));
  assert.throws(() => checkUse(pod, { fromTemplate: true }, claim(reserved, "another")), {
    message: `ResourceClaim ${namespace}/claim was not created for Pod ${namespace}/${name} (Pod is not owner)`,
  });
  assert.throws(() => checkUse(pod, { fromTemplate: false }, claim({})), {
    message: `pod ${name} (${uid}) is not allowed to use ResourceClaim claim (claim-uid)`,
  });
});
