import assert from "node:assert/strict";
import { test } from "node:test";
import { createServed } from "../../../src/admission/served.ts";
import type { Volume } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const demanding = aPod({
  securityContext: { seccompProfile: { type: "RuntimeDefault" }, appArmorProfile: { type: "RuntimeDefault" } },
  initContainers: [aContainer("i", { resources: { limits: { cpu: "1" } } })],
  containers: [
    aContainer("a", { securityContext: { privileged: true }, resources: { limits: { memory: "1Gi" } } }),
    aContainer("b", { securityContext: { privileged: false, seccompProfile: { type: "Unconfined" } } }),
  ],
});

const token = {
  name: "t",
  projected: { sources: [{ configMap: { name: "ca" } }, { serviceAccountToken: { path: "token" } }] },
};

test("a token that belongs to the pod's user needs a target on which files can be given away", () => {
  const fieldsOf = (...given: Parameters<typeof aPod>) =>
    createServed((feature) => (feature === "fileOwner" ? "not root" : undefined))
      .unserved(aPod(...given))
      .map(({ field, why }) => `${why}: ${field}`);
  const volumes = [{ name: "e", emptyDir: {} }, token];
  assert.deepEqual(fieldsOf({ volumes, securityContext: { runAsUser: 1000 } }), [
    "not root: spec.volumes[1].projected",
  ]);
  assert.deepEqual(fieldsOf({ volumes }), [], "a token that anybody in the pod may read");
  assert.deepEqual(fieldsOf({ volumes: [], securityContext: { runAsUser: 1000 } }), [], "no token");
});

test("volumes of a group need a target on which files can be given away", () => {
  const served = createServed((feature) => (feature === "fileOwner" ? "not root" : undefined));
  const grouped = (...volumes: Volume[]) =>
    served.unserved(aPod({ volumes, securityContext: { fsGroup: 2000 } })).map(({ field }) => field);
  assert.deepEqual(grouped({ name: "e", emptyDir: {} }), ["spec.securityContext.fsGroup"]);
  assert.deepEqual(grouped({ name: "h", hostPath: { path: "/h" } }), [], "a directory of the machine stays as it is");
});

test("a part of a volume, and huge pages, need a target on which graftlet may mount", () => {
  const served = createServed((feature) => (feature === "mount" ? "not root" : undefined));
  const pages = [
    { name: "e", emptyDir: {} },
    { name: "h", emptyDir: { medium: "HugePages" } },
  ];
  assert.deepEqual(
    served.unserved(aPod({ volumes: pages })).map(({ field }) => field),
    ["spec.volumes[1].emptyDir.medium"],
  );
  const mountPropagation = "HostToContainer";
  const mounts = [
    { name: "h", subPath: "a" },
    { name: "e", subPath: "", mountPropagation: "None" },
    { name: "e", subPathExpr: "$(A)", mountPropagation },
    { name: "h", mountPropagation },
  ];
  const volumeMounts = mounts.map((mount, at) => ({ mountPath: `/${at}`, ...mount }));
  const volumes = [
    { name: "e", emptyDir: {} },
    { name: "h", hostPath: { path: "/" } },
  ];
  assert.deepEqual(
    served.unserved(aPod({ volumes, containers: [aContainer("c", { volumeMounts })] })).map(({ field }) => field),
    ["[0].subPath", "[2].subPathExpr", "[2].mountPropagation"].map(
      (field) => `spec.containers[0].volumeMounts${field}`,
    ),
  );
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
