import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Refused } from "../harness/api.ts";
import { startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { configMap, mounts } from "../harness/manifests.ts";
import { addresses } from "../harness/namespaces.ts";
import { podFolder, volumeFolder } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell, statusOf } from "../harness/pods.ts";
import { shown, waitsForVolume } from "../harness/volumes.ts";

let cluster: Cluster;
let pods: Pods;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "trouble" }));
  const { kubeletRoot } = cluster.layout;
  await inside("mkdir", "-p", kubeletRoot);
  await inside("mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs", kubeletRoot);
  // Space is to run out before anybody thinks of evicting.
  const config = { evictionHard: { "memory.available": "100Mi" }, syncFrequency: "5s" };
  owned.use(await startGraftlet(cluster, { args: ["-v=6"], config }));
  pods = owned.use(await openPods(cluster));
});
after(() => owned.disposeAsync());

const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);

/** Puts a ConfigMap past the API server's validation, where it keeps its objects. */
async function smuggle(name: string, data: Readonly<Record<string, string>>): Promise<void> {
  const metadata = { name, namespace: "default", uid: crypto.randomUUID(), creationTimestamp: "2026-01-01T00:00:00Z" };
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const value = base64(JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata, data }));
  const body = JSON.stringify({ key: base64(`/registry/configmaps/default/${name}`), value });
  await inside("curl", "-sSf", "-d", body, `${addresses.etcd}/v3/kv/put`);
}

describe("input that leads out of a volume", () => {
  test("keys with dots and slashes that no API server admits become files within the volume, or are rejected", async () => {
    const root = join(cluster.root, cluster.layout.kubeletRoot);
    await smuggle("leaving", { fine: "1", "../../../../escape": "2" });
    await smuggle("around", { "a/../../../escape": "2" });
    await smuggle("hiding", { "..data": "2" });
    const volume = (name: string) => ({ name: "v", configMap: { name } });
    await Promise.all([
      waitsForVolume(pods, "leaving", volume("leaving"), "invalid path: must not contain '..': ../../../../escape"),
      waitsForVolume(pods, "around", volume("around"), "invalid path: must not contain '..': a/../../../escape"),
      waitsForVolume(pods, "hiding", volume("hiding"), "invalid path: must not start with '..': ..data"),
    ]);
    await smuggle("staying", { "deep/key": "3" });
    assert.equal(
      await shown(pods, "staying", [volume("staying")], "cat /v/deep/key; readlink /v/deep"),
      "3..data/deep\n",
    );
    const found = await inside("find", cluster.layout.kubeletRoot, "-name", "escape*");
    assert.equal(found, "");
    assert.ok(existsSync(root));
  });

  test("the API server rejects paths of items, subPaths and directories that lead outside", async () => {
    const key = { key: "k", path: "../k" };
    const field = { path: "/f", fieldRef: { fieldPath: "metadata.name" } };
    const volumes = [
      { configMap: { name: "m", items: [key] } },
      { secret: { secretName: "s", items: [key] } },
      { downwardAPI: { items: [field] } },
      { projected: { sources: [{ configMap: { name: "m", items: [{ key: "k", path: "a/../../k" }] } }] } },
      { projected: { sources: [{ serviceAccountToken: { path: "../token" } }] } },
      { hostPath: { path: "/tmp/../etc" } },
    ];
    for (const [index, volume] of volumes.entries())
      await assert.rejects(
        pods.create(`refused-${index}`, { volumes: [{ name: "v", ...volume }] }),
        (error) => error instanceof Refused && error.status === 422,
      );
    for (const [index, subPath] of ["../out", "a/../../out", "/out"].entries())
      await assert.rejects(
        pods.create(`part-${index}`, {
          volumes: [{ name: "v", emptyDir: {} }],
          containers: [{ volumeMounts: [{ name: "v", mountPath: "/v", subPath }] }],
        }),
        (error) => error instanceof Refused && error.status === 422,
      );
  });
});

test("without disk space, new pods wait with a reason, running ones are unaffected, and all recover", async () => {
  const { kubeletRoot } = cluster.layout;
  const text = (letter: string) => letter.repeat(50_000);
  await cluster.apply([configMap("standing", { key: text("a") }), configMap("late", { key: text("b") })]);
  const volumes = (name: string) => [
    { name: "map", configMap: { name } },
    { name: "empty", emptyDir: {} },
    { name: "memory", emptyDir: { medium: "Memory" } },
  ];
  const spec = (name: string) => ({
    volumes: volumes(name),
    containers: [shell("touch /empty/mine; exec sleep infinity", { volumeMounts: mounts(volumes(name)) })],
  });
  await pods.create("standing", spec("standing"));
  const standing = await pods.ready("standing");
  const filled = await cluster.runInside(["dd", "if=/dev/zero", `of=${kubeletRoot}/fill`, "bs=64k"]);
  assert.match(filled.stderr, /No space left/);

  await pods.create("late", spec("late"));
  const late = await pods.event(
    "late",
    "FailedMount",
    /^MountVolume\.SetUp failed for volume "map" : .*no space left on device/i,
  );
  assert.equal(late.type, "Warning");
  await cluster.apply([configMap("standing", { key: text("c") })]);
  await pods.event(
    "standing",
    "FailedMount",
    /^MountVolume\.SetUp failed for volume "map" : .*no space left on device/i,
  );
  const map = volumeFolder(cluster, standing, "configmap", "map");
  assert.equal(readFileSync(join(map, "key"), "utf8"), text("a"), "the old version, whole");
  assert.equal(await cluster.mustKubectl(["exec", "standing", "--", "ls", "/empty"]), "mine\n");

  await inside("rm", `${kubeletRoot}/fill`);
  await pods.ready("late");
  await cluster.waitFor("the new version", () => readFileSync(join(map, "key"), "utf8") === text("c"), 120_000);
  const versions = () => readdirSync(map).filter((name) => /^\.\.\d/.test(name));
  // The old version is removed once the new one is shown.
  await cluster.waitFor("nothing half-made to be left", () => versions().length === 1);
  const still = await pods.ready("standing");
  assert.deepEqual([still.metadata.uid, statusOf(still)?.restartCount], [standing.metadata.uid, 0]);
  for (const name of ["standing", "late"]) {
    const folder = podFolder(cluster, await pods.ready(name));
    const gone = pods.gone(name);
    await pods.remove(name);
    await gone;
    await cluster.waitFor(`${name}'s folder to be gone`, () => !existsSync(folder));
  }
});
