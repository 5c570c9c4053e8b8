import assert from "node:assert/strict";
import { test } from "node:test";
import { listMounts } from "../../../src/host/mounts.ts";
import { removalPlan } from "../../../src/remove/plan.ts";
import { stagedVolumes } from "../../../src/remove/staged.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const root = "/var/lib/kubelet";
const { signal } = new AbortController();

test("what a storage driver staged is unmounted first, then its record goes, then the directories from the deepest", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const all = `${root}/plugins/kubernetes.io/csi`;
  const own = `${all}/d/${"a".repeat(64)}`;
  const local = `${root}/plugins/kubernetes.io/local-volume/mounts`;
  await host.fs.apply([{ do: "mkdir", path: `${own}/globalmount`, parents: true }]);
  await host.fs.apply([{ do: "mkdir", path: `${local}/pv`, parents: true }]);
  host.files.put(`${own}/vol_data.json`, { data: "{}" });
  host.files.mount(`${own}/globalmount`, "csi");
  host.files.put(`${root}/plugins/d/csi.sock`, { kind: "socket" });
  const staged = await stagedVolumes(host.fs, root, await listMounts(host), signal);
  const findings = { pods: [], belongings: [], staged, files: [], tiers: [], made: [], ownDirectory: undefined };
  const tiers = removalPlan({ ...findings, strangers: [] }).staged;
  const lines = tiers.map((tier) => tier.map((thing) => `${thing.is} ${"path" in thing ? thing.path : ""}`).join());
  assert.deepEqual(lines, [
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
