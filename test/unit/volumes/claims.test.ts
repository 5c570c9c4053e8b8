import assert from "node:assert/strict";
import { test } from "node:test";
import type { PersistentVolume, PersistentVolumeClaim, Volume } from "../../../src/objects.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, directoryOf, mounted, podWith, volumeBench } from "./volume-bench.ts";

const data: Volume = { name: "v", persistentVolumeClaim: { claimName: "data" } };

/** A claim bound to a volume. */
function aClaim(name = "data", more: Partial<PersistentVolumeClaim> = {}): PersistentVolumeClaim {
  const metadata = { name, namespace: "default", uid: `uid-of-${name}` };
  return { metadata, spec: { volumeName: `pv-${name}` }, status: { phase: "Bound" }, ...more };
}

function aVolume(name = "data", spec: PersistentVolume["spec"] = {}, annotations = {}): PersistentVolume {
  return {
    metadata: { name: `pv-${name}`, annotations },
    spec: {
      claimRef: { name, namespace: "default", uid: `uid-of-${name}` },
      volumeMode: "Filesystem",
      local: { path: "/disks/one" },
      accessModes: ["ReadWriteOnce"],
      ...spec,
    },
  };
}

function bound(spec: PersistentVolume["spec"] = {}, annotations = {}): Bench {
  const bench = volumeBench();
  bench.claims.set("data", aClaim());
  bench.volumes.set("pv-data", aVolume("data", spec, annotations));
  bench.host.files.put("/disks/one/precious", { data: "kept" });
  return bench;
}

/** The event for a pod with the volume, after its sync has failed. */
async function refused(bench: Bench, volume = data, pod = podWith([volume])): Promise<string> {
  const giveUp = new AbortController();
  const ending = bench
    .start()
    .mount(pod, giveUp.signal)
    .then(
      () => "mounted",
      (error: unknown) => String(error),
    );
  for (let ms = 0; ms <= 400; ms += 100) await bench.clock.advance(100);
  giveUp.abort();
  assert.notEqual(await ending, "mounted");
  const [first = ""] = bench.events;
  return first.replace(/^Pod Warning (FailedMount: )?/, "");
}

const unable = (why: string) =>
  `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ${why}`;
const unprocessed = (why: string) => unable(`error processing PVC default/data: ${why}`);

const notBound: readonly (readonly [what: string, change: (bench: Bench) => void, why: string])[] = [
  [
    "the claim does not exist",
    ({ claims }) => claims.clear(),
    'failed to fetch PVC from API server: persistentvolumeclaims "data" not found',
  ],
  [
    "the claim is pending",
    ({ claims }) => claims.set("data", aClaim("data", { status: { phase: "Pending" } })),
    "PVC is not bound",
  ],
  [
    "the claim is lost",
    ({ claims }) => claims.set("data", aClaim("data", { status: { phase: "Lost" } })),
    "PVC is not bound",
  ],
  [
    "the claim names no volume",
    ({ claims }) => claims.set("data", aClaim("data", { spec: {} })),
    "PVC has empty pvc.Spec.VolumeName",
  ],
  [
    "the claim is being deleted",
    ({ claims }) => {
      const { metadata, ...rest } = aClaim();
      claims.set("data", { ...rest, metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } });
    },
    "PVC is being deleted",
  ],
  [
    "the volume does not exist",
    ({ volumes }) => volumes.clear(),
    'failed to fetch PV pv-data from API server: persistentvolumes "pv-data" not found',
  ],
  [
    "the volume has no claimRef",
    ({ volumes }) => {
      const { metadata, spec } = aVolume();
      const { claimRef: _none, ...rest } = spec ?? {};
      volumes.set("pv-data", { metadata, spec: rest });
    },
    "found PV object pv-data but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
  ],
  [
    "the volume is bound to another claim",
    ({ volumes }) => volumes.set("pv-data", aVolume("data", { claimRef: { uid: "other" } })),
    "found PV object pv-data but its pv.Spec.ClaimRef.UID other does not point to claim.UID uid-of-data",
  ],
];
for (const [what, change, why] of notBound)
  test(`fails at once, in the kubelet's words, if ${what}`, async () => {
    const bench = bound();
    change(bench);
    assert.equal(await refused(bench), unprocessed(why));
    assert.equal(bench.events.length, 1);
  });

test("mounts a claim that is being deleted while it has the pvc-protection finalizer", async () => {
  const bench = bound();
  const { metadata, ...rest } = aClaim();
  const finalizers = ["kubernetes.io/pvc-protection"];
  bench.claims.set("data", {
    ...rest,
    metadata: { ...metadata, finalizers, deletionTimestamp: "2026-01-01T00:00:00Z" },
  });
  assert.equal((await mounted(bench, [data])).get("v")?.hostPath, directoryOf("local-volume", "pv-data"));
});

test("emits no event for a claim whose volume becomes readable a moment later, and mounts it", async () => {
  const bench = bound();
  bench.volumes.clear();
  const stage = bench.start();
  const mounting = stage.mount(podWith([data]), never);
  await bench.clock.advance(0);
  bench.volumes.set("pv-data", aVolume());
  await bench.clock.advance(100);
  await mounting;
  assert.deepEqual(bench.events, []);
});

for (const [found, isTold] of [
  ["xfs", true],
  ["ext4", false],
] as const)
  test(`a device with ${found} that cannot be mounted as ext4 is reported on ${isTold ? "the PersistentVolume too" : "the pod only"}`, async () => {
    const bench = bound({ local: { path: "/dev/one" } });
    bench.host.files.put("/dev/one", { kind: "blockDevice" });
    bench.host.program("blkid", (_args, { stdout }) => {
      stdout.write(`TYPE=${found}\n`);
      return 0;
    });
    bench.host.program("mount", (_args, { stderr }) => {
      stderr.write("wrong fs type");
      return 32;
    });
    await refused(bench);
    const at = "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv-data";
    const why = `local: failed to mount device /dev/one at ${at} (fstype: ext4), error mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 -o defaults /dev/one ${at}\nOutput: wrong fs type`;
    const ofVolume = `PersistentVolume Warning FailedMountOnFilesystemMismatch: MountVolume failed for volume "pv-data" ${why}`;
    const ofPod = `Pod Warning FailedMount: MountVolume.MountDevice failed for volume "pv-data" : ${why}`;
    const expected = isTold ? [ofVolume, ofPod] : [ofPod, ofPod];
    assert.deepEqual(bench.events.slice(0, 2), expected);
  });

const unfit: readonly (readonly [what: string, spec: PersistentVolume["spec"], why: string])[] = [
  [
    "a block volume",
    { volumeMode: "Block" },
    unable("volume v has volumeMode Block, but is specified in volumeMounts"),
  ],
  [
    "a volume of an unsupported type",
    { local: undefined, fc: { targetWWNs: ["500a0982991b8dc5"], lun: 0 } },
    unable(
      'failed to get Plugin from volumeSpec for volume "pv-data" err=no volume plugin matched: persistent volumes of type fc are not supported by this node',
    ),
  ],
  [
    "a volume of another node",
    {
      nodeAffinity: {
        required: { nodeSelectorTerms: [{ matchExpressions: [{ key: "zone", operator: "In", values: ["b"] }] }] },
      },
    },
    'MountVolume.NodeAffinity check failed for volume "pv-data" : no matching NodeSelectorTerms',
  ],
  [
    "a missing local path",
    { local: { path: "/disks/none" } },
    'MountVolume.NewMounter initialization failed for volume "pv-data" : path "/disks/none" does not exist',
  ],
  [
    "a local path that is a file",
    { local: { path: "/disks/one/precious" } },
    'MountVolume.NewMounter initialization failed for volume "pv-data" : only directory and block device are supported',
  ],
  [
    "a local path with '..'",
    { local: { path: "/disks/one/../one" } },
    "MountVolume.SetUp failed for volume \"pv-data\" : invalid path: /disks/one/../one must not contain '..'",
  ],
  [
    "mount options for a hostPath volume",
    { local: undefined, hostPath: { path: "/disks/one" }, mountOptions: ["noatime"] },
    'MountVolume.MountOptionSupport check failed for volume "pv-data" : mount options are not supported for this volume type',
  ],
];
for (const [what, spec, why] of unfit)
  test(`rejects a claim with ${what} in the kubelet's words`, async () => {
    assert.equal(await refused(bound(spec)), why);
  });

/** A pod that uses the volume as a block device. */
const withDevice = podWith([data], {
  containers: [aContainer("c", { volumeDevices: [{ name: "v", devicePath: "/dev/v" }] })],
});

const noDevice: readonly (readonly [what: string, spec: PersistentVolume["spec"], why: string])[] = [
  ["a filesystem volume", {}, unable("volume v has volumeMode Filesystem, but is specified in volumeDevices")],
  [
    "a directory",
    { volumeMode: "Block" },
    'FailedMapVolume: MapVolume.MapBlockVolume failed for volume "pv-data" : /disks/one is not a block device',
  ],
  [
    "a hostPath volume",
    { volumeMode: "Block", local: undefined, hostPath: { path: "/disks/one" } },
    'MapVolume.FindMapperPluginBySpec failed for volume "pv-data" : failed to find BlockVolumeMapper plugin. Volume plugin is nil.',
  ],
];
for (const [what, spec, why] of noDevice)
  test(`rejects ${what} as a block device`, async () => {
    assert.equal(await refused(bound(spec), data, withDevice), why);
  });

test("a generic ephemeral volume rejects a claim with the expected name but another owner", async () => {
  const ephemeral: Volume = { name: "v", ephemeral: { volumeClaimTemplate: { spec: {} } } };
  const { metadata } = podWith([]);
  const name = `${metadata.name}-v`;
  const owned = (controller: boolean, uid: string) => {
    const bench = bound();
    const own = aClaim(name);
    const ownerReferences = [{ apiVersion: "v1", kind: "Pod", name: metadata.name, uid, controller }];
    bench.claims.set(name, { ...own, metadata: { ...own.metadata, ownerReferences } });
    bench.volumes.set(`pv-${name}`, aVolume(name));
    return bench;
  };
  const why = unable(`PVC default/${name} was not created for pod default/${metadata.name} (pod is not owner)`);
  assert.equal(await refused(owned(true, "other"), ephemeral), why);
  assert.equal(await refused(owned(false, metadata.uid), ephemeral), why);
  assert.deepEqual((await mounted(owned(true, metadata.uid), [ephemeral])).get("v")?.persistent?.name, `pv-${name}`);
});

test("a ReadWriteOncePod volume is not mounted for a second pod until the first has ended", async () => {
  const bench = bound({ accessModes: ["ReadWriteOncePod"] });
  const stage = bench.start();
  await stage.mount(podWith([data]), never);
  const second = podWith([data], {}, { uid: "uid-2", name: "second" });
  const mounting = stage.mount(second, never);
  await bench.clock.advance(0);
  assert.match(
    bench.events.join("\n"),
    /MountVolume.SetUp failed for volume "pv-data" : volume uses the ReadWriteOncePod access mode and is already in use by another pod$/,
  );
  await stage.unmount("uid-1", never);
  await bench.clock.advance(1_000);
  await mounting;
  assert.equal(await bench.text("/disks/one/precious"), "kept");
});

test("a mounted volume has its group, plugin name and read-only flag", async () => {
  const bench = bound({}, { "pv.beta.kubernetes.io/gid": "4000" });
  const readOnly: Volume = { name: "v", persistentVolumeClaim: { claimName: "data", readOnly: true } };
  const found = (await mounted(bench, [readOnly])).get("v");
  assert.equal(found?.readOnly, true);
  assert.deepEqual(found?.persistent, {
    name: "pv-data",
    plugin: "kubernetes.io/local-volume",
    space: "fileSystem",
    isDevice: false,
    group: 4000n,
  });
  assert.deepEqual(
    bench.host.commands.filter(([program]) => program === "mount").map(([, ...words]) => words.slice(0, -1)),
    [
      ["--bind", "/disks/one"],
      ["-o", "remount,bind,ro"],
    ],
  );
});

test("two volumes of a pod with the same claim share one mount", async () => {
  const bench = bound();
  const found = await mounted(bench, [data, { ...data, name: "w" }]);
  assert.equal(found.get("w")?.hostPath, found.get("v")?.hostPath);
  assert.equal(bench.host.commands.filter(([program]) => program === "mount").length, 1);
});
