import assert from "node:assert/strict";
import { test } from "node:test";
import { listMounts } from "../../../src/host/mounts.ts";
import { execute } from "../../../src/remove/execute.ts";
import type { Findings } from "../../../src/remove/findings.ts";
import { removalPlan } from "../../../src/remove/plan.ts";
import { findStagedVolumes } from "../../../src/remove/staged-volumes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { loopDevices } from "../../fakes/host-programs.ts";
import { fakeHost } from "../../fakes/host.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { argvOf } from "../../harness/argv.ts";

const root = "/var/lib/kubelet";
const { signal } = new AbortController();

/** Empty findings. */
const nothing: Findings = {
  pods: [],
  ownedResources: [],
  staged: [],
  files: [],
  qosCgroups: [],
  createdDirectories: [],
  pullRecords: undefined,
  ownDirectory: undefined,
  unowned: [],
};

/** Removed staged volumes in order; items removed together are on one line. */
async function removed(host: ReturnType<typeof fakeHost>): Promise<readonly string[]> {
  const staged = await findStagedVolumes(host.fs, root, await listMounts(host), signal);
  const tiers = removalPlan({ ...nothing, staged }).staged;
  return tiers.map((tier) => tier.map((thing) => `${thing.kind} ${"path" in thing ? thing.path : ""}`).join());
}

test("unmounts a published block volume before removing its file, and keeps foreign files", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/csi/volumeDevices`;
  for (const path of [`${all}/publish/pv/uid`, `${all}/pv/data/vol_data.json`, `${all}/pv/other/precious`])
    host.files.put(path, { data: "{}" });
  await host.fs.apply([{ kind: "mkdir", path: `${all}/staging/pv`, parents: true }]);
  host.files.mount(`${all}/publish/pv/uid`, "devtmpfs");
  assert.deepEqual(await removed(host), [
    `mount ${all}/publish/pv/uid`,
    `emptyDirectory ${all}/staging/pv`,
    `file ${all}/publish/pv/uid`,
    `file ${all}/pv/data/vol_data.json`,
    `emptyDirectory ${all}/publish/pv`,
    `emptyDirectory ${all}/pv/data`,
    `emptyDirectory ${all}/publish`,
    `emptyDirectory ${all}/staging`,
    `emptyDirectory ${all}/pv`,
    `emptyDirectory ${all}`,
    `emptyDirectory ${root}/plugins/kubernetes.io/csi`,
    `emptyDirectory ${root}/plugins/kubernetes.io`,
    `emptyDirectory ${root}/plugins`,
  ]);
});

test("removes staged CSI volumes: unmount, then metadata, then directories from the deepest", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/csi`;
  const own = `${all}/d/${"a".repeat(64)}`;
  const local = `${root}/plugins/kubernetes.io/local-volume/mounts`;
  await host.fs.apply([{ kind: "mkdir", path: `${own}/globalmount`, parents: true }]);
  await host.fs.apply([{ kind: "mkdir", path: `${local}/pv`, parents: true }]);
  host.files.put(`${own}/vol_data.json`, { data: "{}" });
  host.files.mount(`${own}/globalmount`, "csi");
  host.files.put(`${root}/plugins/d/csi.sock`, { kind: "socket" });
  assert.deepEqual(await removed(host), [
    `mount ${own}/globalmount`,
    `emptyDirectory ${local}/pv`,
    `emptyDirectory ${own}/globalmount`,
    `file ${own}/vol_data.json`,
    `emptyDirectory ${own}`,
    `emptyDirectory ${local}`,
    `emptyDirectory ${root}/plugins/kubernetes.io/local-volume`,
    `emptyDirectory ${all}/d`,
    `emptyDirectory ${all}`,
    `emptyDirectory ${root}/plugins/kubernetes.io`,
    `emptyDirectory ${root}/plugins`,
  ]);
});

test("removes nothing of a volume mounted one directory too high", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/csi`;
  const own = `${all}/d/${"a".repeat(64)}`;
  await host.fs.apply([{ kind: "mkdir", path: own, parents: true }]);
  host.files.mount(own, "csi");
  host.files.put(`${own}/vol_data.json`, { data: "theirs" });
  await host.fs.apply([{ kind: "mkdir", path: `${own}/globalmount` }]);
  const planned = await removed(host);
  assert.deepEqual(
    planned.filter((line) => line.includes(own)),
    [],
  );
  assert.ok(planned.includes(`emptyDirectory ${all}/d`));
});

test("removes CSI block volumes with their target paths and metadata", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/csi/volumeDevices`;
  await host.fs.apply([{ kind: "mkdir", path: `${all}/staging/pv`, parents: true }]);
  host.files.put(`${all}/publish/pv/uid-1`, { data: "" });
  host.files.put(`${all}/pv/data/vol_data.json`, { data: "{}" });
  const staged = await findStagedVolumes(host.fs, root, await listMounts(host), signal);
  const plan = removalPlan({ ...nothing, staged });
  assert.deepEqual(plan.unstaging, [{ kind: "staged" }]);
  for (const thing of plan.staged.flat())
    if ("path" in thing) await host.fs.apply([{ kind: "remove", path: thing.path }]);
  assert.equal(await host.fs.lstat(`${root}/plugins`).catch(() => undefined), undefined);
});

test("releases and unmounts a pod's block device first, then removes its file and directories", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const held = [
    `${root}/plugins/kubernetes.io~local-volume/volumeDevices/pv/uid`,
    `${root}/plugins/kubernetes.io/csi/volumeDevices/raw/dev/uid`,
  ];
  host.files.put("/dev/disk", { kind: "blockDevice" });
  for (const path of held) {
    host.files.put(path, { data: "" });
    host.files.bind("/dev/disk", path);
    await host.run(argvOf(["losetup", "-f", path]));
  }
  const staged = await findStagedVolumes(host.fs, root, await listMounts(host), signal);
  const plan = removalPlan({ ...nothing, staged });
  assert.deepEqual(
    plan.staged[0],
    held.map((path) => ({ kind: "heldDevice", path })),
  );
  const runtime = fakeRuntime({ clock: fakeClock() });
  const { failures, remaining } = await execute(
    {
      host,
      runtime,
      cgroups: { remove: async () => {}, children: async () => [] },
      unstageIscsiDisk: async () => undefined,
      drivers: { releasePod: async () => [], releaseNode: async () => [] },
      maxGraceSeconds: 1,
      say: () => {},
    },
    plan,
    signal,
  );
  assert.deepEqual([failures, remaining], [[], []]);
  assert.deepEqual(host.files.mounted(), []);
  assert.deepEqual([...(await loopDevices(host.files))], []);
  assert.equal(await host.fs.lstat(`${root}/plugins`).catch(() => undefined), undefined);
  assert.equal((await host.fs.lstat("/dev/disk")).kind, "blockDevice");
});

test("unstages each iSCSI disk once its pods' devices are released, then removes the directories around it", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/iscsi`;
  const disk = (lun: number) => `iface-default/10.0.0.1:3260-iqn.2026-01.example:a-lun-${lun}`;
  host.files.put(`${all}/${disk(1)}/iscsi.json`, { data: "{}" });
  host.files.put(`${all}/volumeDevices/${disk(2)}/iscsi.json`, { data: "{}" });
  host.files.put(`${all}/volumeDevices/${disk(2)}/uid`, { data: "" });
  host.files.mount(`${all}/${disk(1)}`, "ext4");
  const staged = await findStagedVolumes(host.fs, root, await listMounts(host), signal);
  const plan = removalPlan({ ...nothing, staged });
  assert.deepEqual(plan.unstaging, []);
  assert.deepEqual(plan.staged.slice(0, 3), [
    [{ kind: "heldDevice", path: `${all}/volumeDevices/${disk(2)}/uid` }],
    [{ kind: "iscsiDisk", id: disk(1) }],
    [{ kind: "iscsiDisk", id: disk(2) }],
  ]);
  assert.deepEqual(
    plan.staged
      .slice(3)
      .flat()
      .map((item) => ("path" in item ? `${item.kind} ${item.path}` : item.kind)),
    [
      `${all}/volumeDevices/iface-default`,
      `${all}/iface-default`,
      `${all}/volumeDevices`,
      all,
      `${root}/plugins/kubernetes.io`,
      `${root}/plugins`,
    ].map((path) => `emptyDirectory ${path}`),
  );
});
