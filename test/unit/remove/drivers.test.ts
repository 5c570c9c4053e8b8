import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { localHost } from "../../../providers/local/host.ts";
import { type Clock, systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { stagedPath } from "../../../src/volumes/persistent/csi-volume-data.ts";
import { createCsiVolumeRelease } from "../../../src/commands/release-csi-volumes.ts";
import { execute } from "../../../src/remove/execute.ts";
import type { FoundPod } from "../../../src/remove/findings.ts";
import { removalPlan } from "../../../src/remove/plan.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { startTestDriver } from "../../harness/csi-driver.ts";

const { signal } = new AbortController();
const root = "/var/lib/kubelet";

const podOf = (uid: string, more: Partial<FoundPod> = {}): FoundPod => ({
  uid,
  name: `default/${uid}`,
  containers: [{ id: `${uid}-main`, name: "main", running: true, graceSeconds: 5 }],
  sandboxIds: [`${uid}-sandbox`],
  cgroups: [],
  directory: `${root}/pods/${uid}`,
  mounts: [],
  hasCsiVolumes: false,
  logs: [],
  links: [],
  ...more,
});

/** Removes a pod with a CSI volume, which also has a subPath mount, and the driver's pod. */
async function removal(failing?: string) {
  const host = fakeHost({ clock: fakeClock() });
  const done: string[] = [];
  const part = `${root}/pods/user/volume-subpaths/v/main/0`;
  for (const path of [part, `${root}/pods/driver`]) await host.fs.apply([{ kind: "mkdir", path, parents: true }]);
  host.files.mount(part, "ext4");
  const { apply } = host.fs;
  host.fs.apply = (changes, stop) => {
    for (const change of changes) if (change.kind === "remove") done.push(`remove ${change.path}`);
    return apply(changes, stop);
  };
  const verb = (name: string) => async (id: string) => {
    if (id === failing) throw new CodedError("unavailable", "stuck");
    done.push(`${name} ${id}`);
  };
  const unused = () => Promise.reject(new Error("not asked for"));
  const deps = {
    host,
    runtime: {
      stopContainer: verb("stop"),
      removeContainer: async () => undefined,
      stopPodSandbox: verb("stop"),
      removePodSandbox: async () => undefined,
    },
    cgroups: { remove: unused, children: unused },
    unstageIscsiDisk: async () => undefined,
    drivers: {
      releasePod: async (uid: string) => {
        assert.deepEqual(host.files.mounted(), []);
        done.push(`unpublish ${uid}`);
        return ["volume v of pod default/user: refused"];
      },
      releaseNode: async () => {
        done.push("unstage");
        return [];
      },
    },
    maxGraceSeconds: 60,
    say: () => undefined,
  };
  const staged = [
    { path: `${root}/plugins/kubernetes.io/csi/d/1/globalmount`, isMounted: false, isCsi: true as const },
  ];
  const pods = [podOf("driver"), podOf("user", { hasCsiVolumes: true, mounts: [part] })];
  const none = {
    ownedResources: [],
    qosCgroups: [],
    files: [],
    pullRecords: undefined,
    ownDirectory: undefined,
    createdDirectories: [],
    unowned: [],
  };
  return { done, outcome: await execute(deps, removalPlan({ pods, staged, ...none }), signal) };
}

test("releases CSI volumes while all other pods run, one of which may be the driver", async () => {
  const { done, outcome } = await removal();
  assert.deepEqual(done.slice(0, 4), ["stop user-main", "stop user-sandbox", "unpublish user", "unstage"]);
  assert.deepEqual(done.slice(4).toSorted(), [
    `remove ${root}/plugins/kubernetes.io/csi/d/1/globalmount`,
    `remove ${root}/pods/driver`,
    `remove ${root}/pods/user`,
    "stop driver-main",
    "stop driver-sandbox",
  ]);
  assert.deepEqual(outcome, {
    failures: [],
    skipped: [],
    remaining: [],
    notReleased: ["volume v of pod default/user: refused"],
  });
});

test("terminates no other pod while a pod with a CSI volume does not terminate", async () => {
  const { done, outcome } = await removal("user-main");
  assert.deepEqual(done, []);
  assert.deepEqual(outcome.failures, ["container main of pod default/user, running (user-main): stuck"]);
  for (const line of ["CSI volumes of pod default/user", `directory ${root}/pods/driver`])
    assert.ok(outcome.skipped.includes(line), outcome.skipped.join("\n"));
});

/** Root directory with a volume that a CSI driver staged and published to a pod. */
async function rig(t: TestContext) {
  const rootDir = mkdtempSync(join(tmpdir(), "graftlet-give-back-"));
  t.after(() => rmSync(rootDir, { recursive: true, force: true }));
  const data = JSON.stringify({ driverName: "d", volumeHandle: "h" });
  const published = `${rootDir}/pods/u/volumes/kubernetes.io~csi/pv`;
  const staged = dirname(stagedPath(rootDir, "d", "h"));
  for (const [path, mount] of [
    [published, "mount"],
    [staged, "globalmount"],
  ] as const) {
    mkdirSync(`${path}/${mount}`, { recursive: true });
    writeFileSync(`${path}/vol_data.json`, data);
  }
  /** Clock whose pauses take no real time, but count. */
  const clock: Clock = { ...systemClock(), monotonic: () => passed, sleep: async (ms) => void (passed += ms) };
  let passed = 0;
  const driver = async () => {
    const started = await startTestDriver({ name: "d", rootDir, disks: rootDir, run: async () => undefined });
    t.after(() => started.stop());
    return started;
  };
  const drivers = createCsiVolumeRelease({ host: localHost({ clock }), clock, rootDir });
  return { drivers, driver, published, staged, passed: () => passed };
}

test("releases volumes through a driver whose registration socket answers", async (t) => {
  const { drivers, driver, published, staged } = await rig(t);
  const { methods, calls } = await driver();
  assert.deepEqual(await drivers.releasePod("u", "default/web", signal), []);
  assert.deepEqual(await drivers.releaseNode(signal), []);
  assert.deepEqual(methods(), ["NodeUnpublishVolume", "NodeUnstageVolume"]);
  const paths = calls.flatMap(
    ({ request: { targetPath, stagingTargetPath } }) => targetPath ?? stagingTargetPath ?? [],
  );
  assert.deepEqual(paths, [`${published}/mount`, `${staged}/globalmount`]);
  assert.deepEqual([published, staged].map(existsSync), [false, false]);
  assert.equal(existsSync(dirname(published)), true);
});

test("reports an unavailable driver at once", async (t) => {
  const { drivers, published, passed } = await rig(t);
  const sentence = "volume pv of pod default/web (its data is untouched): the driver d is not running on the target";
  assert.deepEqual(await drivers.releasePod("u", "default/web", signal), [sentence]);
  // The pod's volume has already been reported.
  assert.deepEqual(await drivers.releaseNode(signal), []);
  rmSync(published, { recursive: true });
  assert.deepEqual(await drivers.releaseNode(signal), [
    "volume h (its data is untouched): the driver d is not running on the target",
  ]);
  assert.equal(passed(), 0);
});

test("retries a driver that fails, and reports it after half a minute", async (t) => {
  const { drivers, driver, passed } = await rig(t);
  const { fail, methods } = await driver();
  fail("NodeUnpublishVolume", status.INTERNAL, "busy");
  assert.deepEqual(await drivers.releasePod("u", "default/web", signal), [
    "volume pv of pod default/web (its data is untouched): rpc error: code = Internal desc = busy",
  ]);
  assert.deepEqual([passed(), methods().length], [30_000, 16]);
  fail("NodeUnpublishVolume", undefined);
  assert.deepEqual(await drivers.releasePod("u", "default/web", signal), []);
});
