import assert from "node:assert/strict";
import { test } from "node:test";
import { createFieldChecker } from "../../../src/admission/field-checker.ts";
import type { Volume } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

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

function lackingOnly(lacked: string) {
  return createFieldChecker(async (feature) => (feature === lacked ? "not root" : undefined));
}

test("a service account token owned by the pod's user needs a target where graftlet can change file owners", async () => {
  const served = lackingOnly("fileOwner");
  const fieldsOf = async (...given: Parameters<typeof aPod>) =>
    (await served.unsupportedFields(aPod(...given), never)).map(({ field, why }) => `${why}: ${field}`);
  const volumes = [{ name: "e", emptyDir: {} }, token];
  assert.deepEqual(await fieldsOf({ volumes, securityContext: { runAsUser: 1000 } }), [
    "not root: spec.volumes[1].projected",
  ]);
  assert.deepEqual(await fieldsOf({ volumes }), [], "a token that anybody in the pod may read");
  assert.deepEqual(await fieldsOf({ volumes: [], securityContext: { runAsUser: 1000 } }), [], "no token");
});

test("fsGroup needs a target where graftlet can change file owners", async () => {
  const served = lackingOnly("fileOwner");
  const grouped = async (...volumes: Volume[]) =>
    (await served.unsupportedFields(aPod({ volumes, securityContext: { fsGroup: 2000 } }), never)).map(
      ({ field }) => field,
    );
  assert.deepEqual(await grouped({ name: "e", emptyDir: {} }), ["spec.securityContext.fsGroup"]);
  assert.deepEqual(
    await grouped({ name: "h", hostPath: { path: "/h" } }),
    [],
    "a directory of the machine stays as it is",
  );
});

test("image volumes need no privileges on the target, because the runtime mounts them", async () => {
  const volumes = [{ name: "i", image: { reference: "busybox:1" } }];
  const volumeMounts = [{ name: "i", mountPath: "/i", subPath: "bin" }];
  const pod = aPod({ volumes, securityContext: { fsGroup: 2000 }, containers: [aContainer("c", { volumeMounts })] });
  const asked = await createFieldChecker(async (feature) => feature).unsupportedFields(pod, never);
  assert.deepEqual(asked, [
    { field: "spec.volumes[0].image", why: "imageVolume" },
    { field: "spec.containers[0].volumeMounts[0].subPath", why: "imageSubPath" },
  ]);
});

test("ResourceClaims, including those for extended resources, need a runtime that injects CDI devices", async () => {
  const check = createFieldChecker(async (feature) => feature);
  const claiming = aPod({ resourceClaims: [{ name: "gpu", resourceClaimName: "gpu" }] });
  assert.deepEqual(await check.unsupportedFields(claiming, never), [
    { field: "spec.resourceClaims", why: "cdiDevices" },
  ]);
  const extended = {
    ...aPod(),
    status: { extendedResourceClaimStatus: { resourceClaimName: "c", requestMappings: [] } },
  };
  assert.deepEqual(await check.unsupportedFields(extended, never), [
    { field: "status.extendedResourceClaimStatus", why: "cdiDevices" },
  ]);
});

test("subPaths and huge pages need a target where graftlet can mount", async () => {
  const served = lackingOnly("mount");
  const pages = [
    { name: "e", emptyDir: {} },
    { name: "h", emptyDir: { medium: "HugePages" } },
  ];
  assert.deepEqual(
    (await served.unsupportedFields(aPod({ volumes: pages }), never)).map(({ field }) => field),
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
  const parts = aPod({ volumes, containers: [aContainer("c", { volumeMounts })] });
  assert.deepEqual(
    (await served.unsupportedFields(parts, never)).map(({ field }) => field),
    ["[0].subPath", "[2].subPathExpr", "[2].mountPropagation"].map(
      (field) => `spec.containers[0].volumeMounts${field}`,
    ),
  );
});

test("supports every field on a runtime with all features", async () => {
  assert.deepEqual(await createFieldChecker().unsupportedFields(demanding, never), []);
});

test("reports an unsupported feature with the name of the requesting field and the runtime's reason", async () => {
  assert.deepEqual(await lackingOnly("privileged").unsupportedFields(demanding, never), [
    { field: "spec.containers[0].securityContext.privileged", why: "not root" },
  ]);
});

test("detects each feature in every field that can request it, except if the profile is Unconfined", async () => {
  const served = createFieldChecker(async (feature) => feature);
  assert.deepEqual(
    (await served.unsupportedFields(demanding, never)).map(({ field, why }) => `${why} ${field}`),
    [
      "seccomp spec.securityContext.seccompProfile",
      "appArmor spec.securityContext.appArmorProfile",
      "cpuLimit spec.initContainers[0].resources.limits.cpu",
      "privileged spec.containers[0].securityContext.privileged",
      "memoryLimit spec.containers[0].resources.limits.memory",
    ],
  );
});

test("CPU limits need no support from the runtime if they are 0 or not enforced", async () => {
  const limited = (limits: Record<string, string>) => ({
    metadata: demanding.metadata,
    spec: { containers: [{ name: "c", image: "i", resources: { limits } }] },
  });
  const lacks = async (feature: string) => (feature === "cpuLimit" || feature === "memoryLimit" ? "none" : undefined);
  const fields = async (limits: Record<string, string>, cpuCfsQuota: boolean) =>
    (await createFieldChecker(lacks, { cpuCfsQuota }).unsupportedFields(limited(limits), never)).map(
      ({ field }) => field,
    );
  const both = { cpu: "100m", memory: "1Mi" };
  const memory = "spec.containers[0].resources.limits.memory";
  assert.deepEqual(await fields(both, true), [memory, "spec.containers[0].resources.limits.cpu"]);
  assert.deepEqual(await fields(both, false), [memory]);
  assert.deepEqual(await fields({ cpu: "0", memory: "0" }, true), []);
});

test("hostUsers: false needs a runtime with user namespaces", async () => {
  const check = createFieldChecker(async (feature) => feature);
  assert.deepEqual(await check.unsupportedFields(aPod({ hostUsers: false }), never), [
    { field: "spec.hostUsers", why: "userNamespace" },
  ]);
  assert.deepEqual(await check.unsupportedFields(aPod({ hostUsers: true }), never), []);
});
