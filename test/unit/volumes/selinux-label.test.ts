import assert from "node:assert/strict";
import { test } from "node:test";
import { readContainerLabels } from "../../../src/host/selinux.ts";
import { fileLabel, optionsOfVolume, randomLevel, shortAccessMode } from "../../../src/volumes/selinux-label.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const labels = { process: "system_u:system_r:container_t:s0", file: "system_u:object_r:container_file_t:s0" };
const level = () => "s0:c7,c9";
const label = (options: Parameters<typeof fileLabel>[1], policy = labels) => fileLabel(policy, options, level);

test("a file's label has the requested user and level, and the policy's role and type", () => {
  assert.equal(label({ level: "s0:c1,c2" }), "system_u:object_r:container_file_t:s0:c1,c2");
  const all = { user: "staff_u", role: "staff_r", type: "spc_t", level: "s0" };
  assert.equal(label(all), "staff_u:object_r:container_file_t:s0");
});

test("a label without a level gets random categories; without options there is no label", () => {
  assert.equal(label({ type: "spc_t" }), "system_u:object_r:container_file_t:s0:c7,c9");
  assert.equal(label({}), "");
  assert.equal(label({ user: "" }), "");
});

test("a random level has two different categories in ascending order", () => {
  const drawn = (...draws: number[]) =>
    randomLevel({ jitter: (low, high) => low + (draws.shift() ?? 0) * (high - low) });
  assert.equal(drawn(0, 0), "s0:c0,c1");
  assert.equal(drawn(0.9999, 0.9999), "s0:c1022,c1023");
  assert.equal(drawn(0.5, 0.1), "s0:c102,c512");
});

test("uses a policy without levels or process label, and rejects one with an invalid label", () => {
  const plain = { process: "u:r:t", file: "u:object_r:f" };
  assert.equal(label({ type: "x" }, plain), "u:object_r:f");
  assert.equal(label({ level: "s0" }, plain), "u:object_r:f:s0");
  assert.equal(label({ level: "s0" }, { process: "", file: "u:object_r:f" }), "u:object_r:f");
  assert.throws(() => label({ type: "x" }, { process: "u:r", file: "f:f:f" }), {
    message: 'failed to construct SELinux label from context &{"" "" "x" ""}: invalid Label',
  });
});

test("reads the labels of the policy in use, or those of a container runtime's package", async () => {
  const { fs, files } = fakeHost({ clock: fakeClock() });
  assert.deepEqual(await readContainerLabels(fs, never), { process: "", file: "" });
  files.put("/etc/selinux/config", { data: "# SELINUXTYPE=none\nSELINUX=enforcing\nSELINUXTYPE=default\n" });
  files.put("/etc/selinux/default/contexts/lxc_contexts", {
    data: `process = "${labels.process}"\ncontent = "other"\n; file = "no"\nfile = "${labels.file}"\n`,
  });
  assert.deepEqual(await readContainerLabels(fs, never), labels);
  files.put("/usr/share/containers/selinux/contexts", { data: 'process="p:p:p"\nfile="f:f:f"\n' });
  assert.deepEqual(await readContainerLabels(fs, never), { process: "p:p:p", file: "f:f:f" });
});

test("takes options from the containers that mount the volume; a container's options replace the pod's", () => {
  const mounting = (name: string, more = {}) =>
    aContainer(name, { volumeMounts: [{ name: "v", mountPath: "/v" }], ...more });
  const pod = aPod({
    securityContext: { seLinuxOptions: { level: "s0:c1", user: "u" } },
    initContainers: [mounting("first")],
    containers: [
      mounting("own", { securityContext: { seLinuxOptions: { level: "s0:c2" } } }),
      aContainer("without", { securityContext: { seLinuxOptions: { level: "s0:c3" } } }),
    ],
  });
  assert.deepEqual(optionsOfVolume(pod, "v"), [{ level: "s0:c1", user: "u" }, { level: "s0:c2" }]);
});

test("metrics show the widest access mode of a volume", () => {
  const mode = (...accessModes: string[]) => shortAccessMode({ metadata: { name: "pv" }, spec: { accessModes } });
  assert.equal(mode("ReadWriteOnce", "ReadOnlyMany"), "ROX");
  assert.equal(mode("ReadWriteOncePod"), "RWOP");
  assert.equal(mode("ReadWriteOnce", "ReadWriteMany"), "RWX");
});
