import assert from "node:assert/strict";
import { test } from "node:test";
import { createServed } from "../../../src/admission/served.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const demanding = aPod({
  securityContext: { seccompProfile: { type: "RuntimeDefault" }, appArmorProfile: { type: "RuntimeDefault" } },
  initContainers: [aContainer("i", { resources: { limits: { cpu: "1" } } })],
  containers: [
    aContainer("a", { securityContext: { privileged: true }, resources: { limits: { memory: "1Gi" } } }),
    aContainer("b", { securityContext: { privileged: false, seccompProfile: { type: "Unconfined" } } }),
  ],
});

test("a runtime that does everything holds no pod", () => {
  assert.deepEqual(createServed().unserved(demanding), []);
});

test("what the runtime lacks is named by the field that asks for it, with the runtime's sentence", () => {
  const served = createServed((feature) => (feature === "privileged" ? "the daemon may not" : undefined));
  assert.deepEqual(served.unserved(demanding), [
    { field: "spec.containers[0].securityContext.privileged", why: "the daemon may not" },
  ]);
});

test("each feature is found wherever a pod can ask for it, and Unconfined asks for none", () => {
  assert.deepEqual(
    createServed((feature) => feature)
      .unserved(demanding)
      .map(({ field, why }) => `${why} ${field}`),
    [
      "seccomp spec.securityContext.seccompProfile",
      "appArmor spec.securityContext.appArmorProfile",
      "cpuLimit spec.initContainers[0].resources.limits.cpu",
      "privileged spec.containers[0].securityContext.privileged",
      "memoryLimit spec.containers[0].resources.limits.memory",
    ],
  );
});
