import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodePublishVolumeRequest, NodeStageVolumeRequest } from "../../../src/gen/csi.ts";
import type { PersistentVolume } from "../../../src/objects.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { bound, data, published, staged } from "./csi-bench.ts";
import { type Bench, installSelinux, podWith } from "./volume-bench.ts";

const label = (categories: string) => `system_u:object_r:container_file_t:s0:${categories}`;

/** A target with SELinux, and a driver whose volumes can be mounted with a label. */
function labelled(spec: NonNullable<PersistentVolume["spec"]> = { accessModes: ["ReadWriteOncePod"] }): Bench {
  const bench = bound(spec);
  installSelinux(bench);
  bench.storage.objects.set("d", { metadata: { name: "d" }, spec: { attachRequired: false, seLinuxMount: true } });
  return bench;
}

const withLevel = (level: string, uid = "uid-1", seLinuxChangePolicy?: string) =>
  podWith(
    [data],
    { securityContext: { seLinuxOptions: { level }, ...(seLinuxChangePolicy && { seLinuxChangePolicy }) } },
    { uid, name: uid },
  );

/** Mount flags of the calls so far. */
const flags = ({ storage }: Bench) =>
  (storage.requests as readonly (NodeStageVolumeRequest | NodePublishVolumeRequest)[]).map(
    ({ volumeCapability }) => volumeCapability?.mount?.mountFlags,
  );

const saved = async (bench: Bench, directory: string) =>
  (JSON.parse(await bench.text(`${directory}/vol_data.json`)) as Record<string, string>)["seLinuxMountContext"];

/** Mounts a pod's volume, which fails. @returns the message of the failure. */
async function failure(bench: Bench, stage: ReturnType<Bench["start"]>, pod: ReturnType<typeof withLevel>) {
  const mounting = stage.mount(pod, never).then(() => "mounted", String);
  for (let reads = 0; reads < 5; reads++) await bench.clock.advance(100);
  return mounting;
}

test("a ReadWriteOncePod volume is staged and published with the pod's label, which is saved next to it, and is not relabelled", async () => {
  const bench = labelled({ accessModes: ["ReadWriteOncePod"], mountOptions: ["noatime"] });
  const stage = bench.start();
  await stage.mount(withLevel("s0:c1,c2"), never);
  const expected = ["noatime", `context="${label("c1,c2")}"`];
  assert.deepEqual(flags(bench), [expected, expected]);
  assert.deepEqual([await saved(bench, staged), await saved(bench, published)], [label("c1,c2"), label("c1,c2")]);
  assert.equal(stage.mounted("uid-1").get("v")?.unlabelled, true);
});

test("mounts a volume without a label if the target, the driver, the pod or the access mode does not support it, or with policy Recursive", async () => {
  const plain = bound({ accessModes: ["ReadWriteOncePod"] });
  plain.storage.objects.set("d", { metadata: { name: "d" }, spec: { attachRequired: false, seLinuxMount: true } });
  const unsupported = labelled();
  unsupported.storage.objects.set("d", { metadata: { name: "d" }, spec: { attachRequired: false } });
  const cases = [
    [plain, withLevel("s0:c1")],
    [unsupported, withLevel("s0:c1")],
    [labelled(), podWith([data])],
    [labelled({ accessModes: ["ReadWriteOnce"] }), withLevel("s0:c1")],
    [labelled({ accessModes: ["ReadWriteOncePod", "ReadWriteOnce"] }), withLevel("s0:c1")],
    [labelled(), withLevel("s0:c1", "uid-1", "Recursive")],
  ] as const;
  for (const [index, [bench, pod]] of cases.entries()) {
    await bench.start().mount(pod, never);
    assert.deepEqual(flags(bench), [[], []], String(index));
    assert.equal(await saved(bench, staged), undefined);
  }
});

test("with feature gate SELinuxMount, volumes of all access modes are mounted with a label, even with policy MountOption", async () => {
  const bench = labelled({ accessModes: ["ReadWriteMany"] });
  bench.mountsAllModes = true;
  await bench.start().mount(withLevel("s0:c1", "uid-1", "MountOption"), never);
  assert.deepEqual(flags(bench)[0], [`context="${label("c1")}"`]);
});

test("containers with different labels cannot share a ReadWriteOncePod volume; with another access mode the conflict is only counted", async () => {
  const volumeMounts = [{ name: "v", mountPath: "/v" }];
  const containers = ["s0:c2", "s0:c1"].map((level, index) =>
    aContainer(`c${index}`, { volumeMounts, securityContext: { seLinuxOptions: { level } } }),
  );
  const pod = podWith([data], { containers });
  const bench = labelled();
  assert.match(
    await failure(bench, bench.start(), pod),
    new RegExp(
      String.raw`unattached volumes=\[\], failed to process volumes=\[v\]: multiple SELinux labels found: ${label("c1")},${label("c2")}$`,
    ),
  );
  assert.deepEqual(
    bench.measured,
    ["containers differ true RWOP"].concat(Array(3).fill("containers differ true RWOP")),
  );
  const once = labelled({ accessModes: ["ReadWriteOnce"] });
  await once.start().mount(pod, never);
  assert.deepEqual([once.measured, flags(once)], [["containers differ false RWO"], [[], []]]);
});

test("a pod with another label waits until the first pod has ended, and then gets the volume staged again", async () => {
  const bench = labelled();
  const stage = bench.start();
  await stage.mount(withLevel("s0:c1"), never);
  const other = withLevel("s0:c2", "uid-2");
  assert.match(
    await failure(bench, stage, other),
    new RegExp(`conflicting SELinux labels of volume pv: "${label("c1")}" and "${label("c2")}"$`),
  );
  await stage.unmount("uid-1", never);
  bench.storage.requests.length = 0;
  bench.storage.calls.length = 0;
  await stage.mount(other, never);
  assert.deepEqual(
    bench.storage.calls.map((call) => call.split(" ")[0]),
    ["stage", "publish"],
  );
  assert.deepEqual(flags(bench)[0], [`context="${label("c2")}"`]);
  assert.equal(await saved(bench, staged), label("c2"));
  assert.ok(bench.measured.includes("admitted kubernetes.io/csi/d RWOP"));
  assert.ok(bench.measured.includes("pods differ true kubernetes.io/csi/d RWOP"));
});

test("pods share a volume of another access mode despite different labels, which are counted", async () => {
  const bench = labelled({ accessModes: ["ReadWriteOnce"] });
  const stage = bench.start();
  for (const [level, uid] of [
    ["s0:c1", "uid-1"],
    ["s0:c2", "uid-2"],
  ] as const)
    await stage.mount(withLevel(level, uid), never);
  const plugin = "kubernetes.io/csi/d";
  assert.deepEqual(bench.measured, [`admitted ${plugin} RWO`, `pods differ false ${plugin} RWO`]);
});

test("a volume that stayed staged with another label is unstaged first", async () => {
  const bench = labelled();
  const first = bench.start();
  await first.mount(withLevel("s0:c1"), never);
  // The driver does not unstage it at the pod's end, and graftlet restarts.
  bench.storage.onStep(() =>
    bench.storage.calls.at(-1)?.startsWith("unstage") ? Promise.reject(new Error("busy")) : undefined,
  );
  await first.unmount("uid-1", never);
  first.stop();
  bench.storage.onStep(undefined);
  bench.storage.calls.length = 0;
  await bench.start().mount(withLevel("s0:c2", "uid-2"), never);
  assert.deepEqual(
    bench.storage.calls.map((call) => call.split(" ")[0]),
    ["unstage", "stage", "publish"],
  );
  assert.equal(await saved(bench, staged), label("c2"));
});

test("after a restart, a pod with another label waits until the volume of the first pod is unmounted", async () => {
  const bench = labelled();
  await bench.start().mount(withLevel("s0:c1"), never);
  const next = bench.start();
  assert.match(
    await failure(bench, next, withLevel("s0:c2", "uid-2")),
    /waiting for unmount of volume "kubernetes.io\/csi\/d\^h", because it is already mounted to a different pod with a different SELinux label$/,
  );
});

test("after a restart, a running pod keeps the label that it has, even a random one", async () => {
  const bench = labelled();
  const typed = podWith([data], { securityContext: { seLinuxOptions: { type: "spc_t" } } });
  await bench.start().mount(typed, never);
  const before = await saved(bench, staged);
  assert.match(before ?? "", /^system_u:object_r:container_file_t:s0:c\d+,c\d+$/);
  bench.storage.calls.length = 0;
  await bench.start().mount(typed, never);
  assert.equal(await saved(bench, staged), before);
  assert.ok(!bench.storage.calls.some((call) => call.startsWith("unstage")));
});
