import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { claim, claimSpec, claimTemplate, localVolume, persistentVolume, storageClass } from "../harness/claims.ts";
import { heldDevices, untilMapped } from "../harness/held-devices.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf, podFolder, podMounts } from "../harness/pod-machine.ts";
import { images, openPods, type Pods, shell, type SpecDraft, statusOf } from "../harness/pods.ts";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims" }));
  agent = await restart();
  pods = owned.use(await openPods(cluster));
  await inside("mkdir", "-p", disks());
  await cluster.apply([storageClass]);
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await Promise.all(devices.map((device) => inside("losetup", "-d", device)));
  await owned.disposeAsync();
});

const devices: string[] = [];

/** A pod that is to end while graftlet is away ends soon after. */
const restart = () => startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "5s" } });

/** A block device of the machine's, blank. */
async function loopDevice(name: string): Promise<string> {
  const file = join(disks(), `${name}.img`);
  await inside("truncate", "-s", "64M", file);
  const device = (await inside("losetup", "--find", "--show", file)).trim();
  devices.push(device);
  return device;
}

/** Where a pod's claim on a local volume lies on the machine. */
const folderOf = (uid: string, volume: string) =>
  join(cluster.layout.kubeletRoot, "pods", uid, "volumes/kubernetes.io~local-volume", volume);

/** Starts a pod with a claim, which is to wait. */
async function waits(name: string, persistentVolumeClaim: { readonly claimName: string }, spec: SpecDraft = {}) {
  const { metadata } = await pods.create(name, {
    volumes: [{ name: "v", persistentVolumeClaim }],
    containers: [shell("sleep 3600", { volumeMounts: [mount("v", { mountPath: "/v" })] })],
    ...spec,
  });
  return metadata;
}

/** Finds a claim in the node's statistics and metrics. */
async function measured(pod: string, volume: string, name: string): Promise<void> {
  const node = `/api/v1/nodes/${cluster.nodeName}/proxy`;
  const found = await cluster.waitFor("the volume's statistics", async () => {
    const { pods: all } = JSON.parse(await kubectl("get", "--raw", `${node}/stats/summary`)) as {
      pods: { podRef: { name: string }; volume?: { name: string; pvcRef?: object; capacityBytes: number }[] }[];
    };
    return all.find(({ podRef }) => podRef.name === pod)?.volume?.find((one) => one.name === volume);
  });
  assert.deepEqual(found.pvcRef, { name, namespace: "default" });
  assert.ok(found.capacityBytes > 0);
  const metrics = await kubectl("get", "--raw", `${node}/metrics`);
  const labels = `{namespace="default",persistentvolumeclaim="${name}"}`;
  for (const series of ["capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"])
    assert.match(metrics, new RegExp(`^kubelet_volume_stats_${series}${labels} [0-9]`, "m"));
}

/** A folder of the machine's, where its disks are. */
const disks = () => join(cluster.layout.dir, "disks");

const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);

/** A directory of the machine's with a file in it. */
async function disk(name: string): Promise<string> {
  const path = join(disks(), name);
  await inside("sh", "-c", `mkdir -p ${path} && echo kept > ${path}/precious`);
  return path;
}

/** What a file of the machine's holds. */
const textOf = (path: string) => readFileSync(join(cluster.root, path), "utf8");

/** Mounts below the root directory that are a pod's claim or what it is made from. */
const claimMounts = () => mountsOf(cluster).filter((path) => /kubernetes\.io[~/]local-volume/.test(path));

async function removed(name: string): Promise<void> {
  const gone = pods.gone(name);
  await pods.remove(name, 1);
  await gone;
}

async function kubectl(...args: readonly string[]): Promise<string> {
  return cluster.mustKubectl(args);
}

const appending = "cd /v; date >> log; wc -l < log; trap 'exit 0' TERM; sleep 3600 & wait";

describe("pods with PersistentVolumeClaims", () => {
  test("local volumes of a StatefulSet keep their data when its pods are deleted", async () => {
    const paths = await Promise.all(["set-a", "set-b"].map(disk));
    await cluster.apply(paths.map((path, index) => localVolume(`set-${index}`, path, cluster.nodeName)));
    await cluster.apply([
      {
        apiVersion: "apps/v1",
        kind: "StatefulSet",
        metadata: { name: "db", namespace: "default" },
        spec: {
          replicas: 2,
          serviceName: "db",
          podManagementPolicy: "Parallel",
          selector: { matchLabels: { app: "db" } },
          template: {
            metadata: { labels: { app: "db" } },
            spec: {
              terminationGracePeriodSeconds: 1,
              containers: [
                {
                  name: "main",
                  image: images.busybox,
                  command: ["sh", "-c", appending],
                  volumeMounts: [mount("v", { mountPath: "/v" }), mount("v", { mountPath: "/part", subPath: "sub" })],
                },
              ],
            },
          },
          volumeClaimTemplates: [claimTemplate("v")],
        },
      },
    ]);
    const first = await Promise.all(["db-0", "db-1"].map((name) => pods.ready(name)));
    for (const pod of first)
      assert.equal(podMounts(cluster, pod).filter((path) => path.includes("local-volume")).length, 1);
    await kubectl("exec", "db-0", "--", "sh", "-c", "echo row > /part/table");
    const before = first[0]?.metadata.uid;
    await pods.remove("db-0", 1);
    await pods.until("db-0", "to be another", (pod) => pod.metadata.uid !== before && statusOf(pod)?.ready === true);
    await cluster.waitFor("a second line", async () => (await pods.log("db-0")).trim() === "2");
    assert.equal(await kubectl("exec", "db-0", "--", "cat", "/v/sub/table"), "row\n");
    await kubectl("scale", "statefulset", "db", "--replicas=0");
    await cluster.waitFor("no mount", () => claimMounts().length === 0);
    for (const path of paths) assert.equal(textOf(`${path}/precious`), "kept\n");
    assert.equal(paths.filter((path) => existsSync(join(cluster.root, path, "sub/table"))).length, 1);
  });

  test("formats a block device once, mounts it once per node, bind-mounts it for each pod, and keeps the mounts right when graftlet is killed", async () => {
    const device = await loopDevice("block");
    await cluster.apply([
      localVolume("block", device, cluster.nodeName, {
        local: { path: device, fsType: "" },
        mountOptions: ["noatime"],
      }),
      claim("block", "block"),
    ]);
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "block" } }];
    const write = (name: string, group: number) =>
      pods.create(name, {
        volumes,
        securityContext: { fsGroup: group },
        containers: [
          shell(`id -G; stat -c '%g %a' /v; touch /v/${name}; sleep 3600`, {
            securityContext: { runAsUser: 1000 },
            volumeMounts: [mount("v", { mountPath: "/v" })],
          }),
        ],
      });
    await write("block-1", 2000);
    const first = await pods.ready("block-1");
    await pods.logged("block-1", /2000\n2000 2775\n$/);
    await write("block-2", 3000);
    const second = await pods.ready("block-2");
    await pods.event(
      "block-2",
      "AlreadyMountedVolume",
      "The requested fsGroup is 3000, but the volume block has GID 2000. The volume may not be shareable.",
    );
    const standing = () => claimMounts().filter((path) => path.endsWith("/block"));
    const expected = [
      join(cluster.layout.kubeletRoot, "plugins/kubernetes.io/local-volume/mounts/block"),
      ...[first, second].map(({ metadata }) => folderOf(metadata.uid, "block")),
    ].sort();
    assert.deepEqual(standing().sort(), expected);
    assert.match(await inside("grep", "local-volume/mounts/block ", "/proc/self/mountinfo"), /noatime/);

    await agent.kill("SIGKILL");
    agent = await restart();
    await write("block-3", 2000);
    const third = await pods.ready("block-3");
    assert.deepEqual(standing().sort(), [...expected, folderOf(third.metadata.uid, "block")].sort());

    // A pod ends while nobody looks after it; what it leaves is found, and what others use stays.
    await agent.kill("SIGKILL");
    await pods.remove("block-1", 0);
    agent = await restart();
    await cluster.waitFor("the first pod's mount to go", () => standing().length === 3);
    assert.match(await kubectl("exec", "block-2", "--", "ls", "/v"), /^block-1\nblock-3\n/);
    await Promise.all(["block-2", "block-3"].map(removed));
    await cluster.waitFor("no mount", () => standing().length === 0);
    const left = await inside("ls", join(cluster.layout.kubeletRoot, "plugins/kubernetes.io/local-volume/mounts"));
    assert.equal(left, "");
    const text = await pods.output("block-4", shell("ls /v", { volumeMounts: [mount("v", { mountPath: "/v" })] }), {
      volumes,
    });
    assert.equal(text, "block-1\nblock-3\nlost+found\n");
  });

  test("passes a raw block device to a container, read-only if requested", async () => {
    const device = await loopDevice("raw");
    await cluster.apply([
      localVolume("raw", device, cluster.nodeName, { volumeMode: "Block" }),
      claim("raw", "raw", { volumeMode: "Block" }),
    ]);
    const raw = (name: string, script: string, readOnly: boolean) =>
      pods.output(name, shell(script, { volumeDevices: [{ name: "v", devicePath: "/dev/data" }] }), {
        volumes: [{ name: "v", persistentVolumeClaim: { claimName: "raw", readOnly } }],
      });
    assert.equal(
      await raw("raw-1", "stat -c %F /dev/data; printf written > /dev/data; sync", false),
      "block special file\n",
    );
    const refused = "head -c 7 /dev/data; (printf again > /dev/data) 2>/dev/null || echo ' refused'";
    assert.equal(await raw("raw-2", refused, true), "written refused\n");
    await Promise.all(["raw-1", "raw-2"].map(removed));
    assert.equal(await inside("head", "-c", "7", device), "written");
  });

  test("maps one device once for each of two pods, recovers from a kill and a removed loop device, and leaves nothing behind", async () => {
    const device = await loopDevice("shared");
    const block = { volumeMode: "Block" };
    await cluster.apply([localVolume("shared", device, cluster.nodeName, block), claim("shared", "shared", block)]);
    const all = join(cluster.layout.kubeletRoot, "plugins/kubernetes.io~local-volume/volumeDevices");
    const mapped = (...uids: readonly string[]) => untilMapped(cluster, `${all}/shared`, uids);
    const start = async (name: string) => {
      const { metadata } = await pods.create(name, {
        terminationGracePeriodSeconds: 1,
        volumes: [{ name: "v", persistentVolumeClaim: { claimName: "shared" } }],
        containers: [shell("sleep 3600", { volumeDevices: [{ name: "v", devicePath: "/dev/data" }] })],
      });
      return metadata.uid;
    };
    const [one, two] = await Promise.all([start("shared-1"), start("shared-2")]);
    await Promise.all([pods.ready("shared-1"), pods.ready("shared-2")]);
    await mapped(one, two);
    await measured("shared-1", "v", "shared");
    const events = () => kubectl("get", "events", "--field-selector", "involvedObject.name=shared-1", "-o", "yaml");
    const told = `MapVolume.MapPodDevice succeeded for volume "shared" globalMapPath "${all}/shared"`;
    await cluster.waitFor("the kubelet's event", async () => (await events()).includes(told));
    // The first pod's loop device goes by hand; then the process dies, and the second pod goes meanwhile.
    await inside("losetup", "-d", (await heldDevices(cluster)).get(`${all}/shared/${one}`) ?? "");
    await agent.kill("SIGKILL");
    await pods.remove("shared-2", 0);
    agent = await restart();
    await mapped(one);
    assert.equal(statusOf(await pods.ready("shared-1"))?.restartCount, 0);
    await removed("shared-1");
    await mapped();
    await cluster.waitFor("no directory", async () => (await inside("ls", all)) === "");
    assert.match(await inside("losetup", "--all"), new RegExp(`${device}:`));
  });

  test("never deletes files through a volume that cannot be unmounted: the pod waits, and its data is kept", async () => {
    const path = await disk("stuck");
    await cluster.apply([localVolume("stuck", path, cluster.nodeName), claim("stuck", "stuck")]);
    await pods.create("stuck", {
      volumes: [{ name: "v", persistentVolumeClaim: { claimName: "stuck" } }],
      containers: [shell("sleep 3600", { volumeMounts: [mount("v", { mountPath: "/v" })] })],
    });
    const pod = await pods.ready("stuck");
    const folder = folderOf(pod.metadata.uid, "stuck");
    // A process of the machine's works in the volume.
    const holder = cluster.spawnInside(["sh", "-c", `cd ${folder} && exec sleep 3600`]);
    await cluster.waitFor("the holder to be there", async () => {
      const { stdout } = await cluster.runInside(["sh", "-c", `readlink /proc/[0-9]*/cwd | grep -c '/stuck$'`]);
      return stdout.trim() === "1";
    });
    const gone = pods.gone("stuck");
    await pods.remove("stuck", 1);
    await cluster.waitFor("a try to unmount it", () => agent.log().includes("target is busy"));
    await agent.kill("SIGKILL");
    agent = await restart();
    await cluster.waitFor("another try", () => agent.log().includes("target is busy"));
    assert.equal(textOf(`${path}/precious`), "kept\n");
    assert.ok(claimMounts().includes(folder));
    holder.kill("SIGKILL");
    await gone;
    await cluster.waitFor("no folder", () => !existsSync(podFolder(cluster, pod)));
    assert.equal(textOf(`${path}/precious`), "kept\n");
  });

  test("uses a hostPath volume in place: checks its type, does not change its group, adds the group to its pods", async () => {
    const path = await disk("host");
    await inside("sh", "-c", `chgrp 4000 ${path}; chmod 2770 ${path}`);
    const annotations = { "pv.beta.kubernetes.io/gid": "4000" };
    await cluster.apply([
      persistentVolume("host", { hostPath: { path, type: "Directory" } }, { annotations }),
      claim("host", "host"),
      persistentVolume("host-file", { hostPath: { path, type: "File" } }),
      claim("host-file", "host-file"),
    ]);
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "host" } }];
    const text = await pods.output(
      "host",
      shell("id -G; cat /v/precious; touch /v/more; stat -c %g /v; touch /ro/x 2>&1", {
        securityContext: { runAsUser: 1000 },
        volumeMounts: [mount("v", { mountPath: "/v" }), mount("ro", { mountPath: "/ro" })],
      }),
      {
        securityContext: { fsGroup: 2000 },
        volumes: [...volumes, { name: "ro", persistentVolumeClaim: { claimName: "host", readOnly: true } }],
      },
    );
    assert.match(text, /^(0 )?2000 4000\nkept\n4000\ntouch: \/ro\/x: Read-only file system\n$/);
    await waits("host-file", { claimName: "host-file" });
    await pods.event(
      "host-file",
      "FailedMount",
      `MountVolume.SetUp failed for volume "host-file" : hostPath type check failed: ${path} is not a file`,
    );
    await Promise.all(["host", "host-file"].map(removed));
    assert.equal(textOf(`${path}/precious`), "kept\n");
  });

  test("a generic ephemeral volume has a claim owned by its pod, is read-only if requested, and is deleted with the pod", async () => {
    const path = await disk("ephemeral");
    await cluster.apply([localVolume("ephemeral", path, cluster.nodeName)]);
    const volumes = [{ name: "v", ephemeral: { volumeClaimTemplate: { spec: claimSpec("ephemeral") } } }];
    await pods.create("own", {
      volumes,
      containers: [shell("cat /v/precious; sleep 3600", { volumeMounts: [mount("v", { mountPath: "/v" })] })],
    });
    const pod = await pods.ready("own");
    await pods.logged("own", "kept\n");
    assert.ok(claimMounts().includes(folderOf(pod.metadata.uid, "ephemeral")));
    await measured("own", "v", "own-v");
    await removed("own");
    await cluster.waitFor("the claim to go with its pod", async () => {
      const { code } = await cluster.kubectl(["get", "pvc", "own-v"]);
      return code !== 0;
    });
    assert.equal(textOf(`${path}/precious`), "kept\n");
  });

  test("a pod waits, with the kubelet's message, while a claim is unbound, deleted or unsupported", async () => {
    await cluster.apply([
      claim("unbound"),
      persistentVolume("far", { fc: { targetWWNs: ["500a0982991b8dc5"], lun: 0 } }),
      claim("far", "far"),
      localVolume("nothing", `${disks()}/nothing`, cluster.nodeName),
      claim("nothing", "nothing"),
    ]);
    const { uid } = await waits("unbound", { claimName: "unbound" }, {});
    assert.ok(uid);
    await pods.until("unbound", "to be unschedulable", (pod) =>
      (pod.status?.conditions ?? []).some(({ type, reason }) => type === "PodScheduled" && reason === "Unschedulable"),
    );
    const unable = (name: string, why: string) =>
      pods.event(
        name,
        "FailedMount",
        `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ${why}`,
      );
    await waits("far", { claimName: "far" });
    await unable(
      "far",
      'failed to get Plugin from volumeSpec for volume "far" err=no volume plugin matched: persistent volumes of type fc are not supported by this node',
    );
    await waits("nothing", { claimName: "nothing" });
    await pods.event(
      "nothing",
      "FailedMount",
      `MountVolume.NewMounter initialization failed for volume "nothing" : path "${disks()}/nothing" does not exist`,
    );
    await waits("missing", { claimName: "missing" }, { nodeName: cluster.nodeName });
    await unable(
      "missing",
      'error processing PVC default/missing: failed to fetch PVC from API server: persistentvolumeclaims "missing" not found',
    );
    await waits("loose", { claimName: "unbound" }, { nodeName: cluster.nodeName });
    await unable("loose", "error processing PVC default/unbound: PVC is not bound");
    // Deleted while a pod has it, a claim stays until the pod has ended.
    await kubectl("delete", "pvc", "nothing", "--wait=false");
    await disk("nothing");
    await pods.ready("nothing");
    await removed("nothing");
    await cluster.waitFor("the claim to go", async () => (await cluster.kubectl(["get", "pvc", "nothing"])).code !== 0);
    await Promise.all(["unbound", "far", "missing", "loose"].map(removed));
  });
});
