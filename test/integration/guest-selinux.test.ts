import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { sshHost } from "../../providers/ssh/host.ts";
import { readSshConfig } from "../../providers/ssh/config.ts";
import { createCsiDriverClient } from "../../src/csi/client.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { PersistentVolume, PersistentVolumeClaim, Pod } from "../../src/objects.ts";
import { allocatedPod } from "../../src/roles.ts";
import { createVolumes, type Volumes } from "../../src/volumes/volumes.ts";
import { unmeasured } from "../fakes/measures.ts";
import { buildProgram } from "../harness/tools.ts";
import { waitFor } from "../harness/wait.ts";
import { bootLoneGuest, type LoneGuest } from "../machines/lone-guest.ts";

const rootDir = "/var/lib/kubelet";
const driver = "hostpath.csi.k8s.io";
const socket = "/run/csi.sock";
const data = "/var/lib/csi-data";
const label = (level: string) => `system_u:object_r:container_file_t:${level}`;
const clock = systemClock();

/** Volumes `once` (ReadWriteOncePod) and `shared` (ReadWriteOnce), with claims of the same names. */
const accessModes: Readonly<Record<string, string>> = { once: "ReadWriteOncePod", shared: "ReadWriteOnce" };

function volumeOf(name: string): PersistentVolume {
  const claimRef = { name, namespace: "default", uid: name };
  const spec = { claimRef, accessModes: [accessModes[name] ?? ""], csi: { driver, volumeHandle: name } };
  return { metadata: { name }, spec: { volumeMode: "Filesystem", ...spec } };
}

function claimOf(name: string): PersistentVolumeClaim {
  const metadata = { name, namespace: "default", uid: name };
  return { metadata, spec: { volumeName: name, volumeMode: "Filesystem" }, status: { phase: "Bound" } };
}

function podOf(uid: string, claimName: string, securityContext: Pod["spec"]["securityContext"]) {
  const volumeMounts = [{ name: "v", mountPath: "/v" }];
  return allocatedPod({
    metadata: { name: uid, namespace: "default", uid },
    spec: {
      ...(securityContext && { securityContext }),
      volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
      containers: [{ name: "c", image: "i", volumeMounts }],
    },
  });
}

// A machine with SELinux and a CSI driver on it, as a node has them; what the node knows of the cluster is the test's.
describe("volumes on a target with SELinux", { timeout: 1_800_000 }, () => {
  const owned = new AsyncDisposableStack();
  let guest: LoneGuest;
  let volumes: Volumes;
  let events: string[];
  const { signal } = new AbortController();

  before(async () => {
    guest = owned.use(await bootLoneGuest({ selinux: true }, console.error));
    const program = await buildProgram({ name: "hostpathplugin", module: "csi" }, console.error);
    await runDriver(guest, program);
    const host = owned.use(sshHost({ config: readSshConfig(guest.login), clock, log: silentLog() }));
    const client = createCsiDriverClient(
      { host, clock, measures: unmeasured.drivers },
      { name: driver, endpoint: socket },
    );
    events = [];
    volumes = createVolumes({
      host,
      waitForTarget: undefined,
      clock,
      rootDir,
      nodeName: "node",
      measures: unmeasured.volumes,
      log: silentLog(),
      events: { event: (_about, _type, reason, message) => void events.push(`${reason}: ${message}`) },
      objects: { configMap: async () => assert.fail(), secret: async () => assert.fail() },
      claims: {
        claim: async (_namespace, name) => claimOf(name),
        persistentVolume: async (name) => volumeOf(name),
        patchStatus: async () => assert.fail(),
      },
      drivers: {
        driver: () => client,
        csiDriver: async (name) => ({ metadata: { name }, spec: { attachRequired: false, seLinuxMount: true } }),
        refreshLimit: async () => assert.fail(),
        volumeAttachment: async () => assert.fail(),
      },
      onVolumesInUse: () => undefined,
      node: () => ({ metadata: { name: "node" } }),
      tokens: { token: async () => assert.fail() },
      trustBundles: { trustAnchors: async () => assert.fail() },
      podCertificates: { credentials: () => assert.fail() },
      allocatable: () => ({ memory: "1Gi" }),
      mountsAllModes: false,
    });
    owned.defer(() => volumes.stop());
  });
  after(() => owned.disposeAsync());

  const path = (uid: string, volume: string) => `${rootDir}/pods/${uid}/volumes/kubernetes.io~csi/${volume}/mount`;
  /** The label of a new file in a pod's volume, as the kernel has it. */
  const labelOf = async (uid: string, volume: string) => {
    const file = `${path(uid, volume)}/${uid}`;
    return (await guest.mustInside(["sh", "-ec", `touch ${file}; stat -c %C ${file}`])).trim();
  };

  test("the target uses SELinux, and files have its policy's labels", async () => {
    assert.match(await guest.mustInside(["getenforce"]), /^(Permissive|Enforcing)\n$/);
    assert.match(await guest.mustInside(["stat", "-c", "%C", "/etc/passwd"]), /^system_u:object_r:etc_t:s0$/m);
  });

  test("a ReadWriteOncePod volume is mounted with its pod's label, which the target's policy completes", async () => {
    await volumes.mount(podOf("first", "once", { seLinuxOptions: { level: "s0:c10,c20" } }), signal);
    assert.equal(await labelOf("first", "once"), label("s0:c10,c20"));
    assert.match(
      await guest.mustInside(["grep", path("first", "once"), "/proc/mounts"]),
      /tmpfs rw,.*context="?system_u:object_r:container_file_t:s0:c10,c20"?/,
    );
    assert.equal(volumes.mounted("first").get("v")?.unlabelled, true);
  });

  test("a pod with another label waits until the volume is free, then gets it with its own label", async () => {
    const second = podOf("second", "once", { seLinuxOptions: { level: "s0:c30,c40" } });
    await assert.rejects(volumes.mount(second, signal), {
      message: `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: conflicting SELinux labels of volume once: "${label("s0:c10,c20")}" and "${label("s0:c30,c40")}"`,
    });
    await volumes.unmount("first", signal);
    await volumes.mount(second, signal);
    assert.equal(await labelOf("second", "once"), label("s0:c30,c40"));
    await volumes.unmount("second", signal);
    assert.equal((await guest.inside(["grep", "-c", "kubernetes.io", "/proc/mounts"])).stdout, "0\n");
  });

  test("with policy Recursive, or another access mode, the volume keeps the labels of its files", async () => {
    const own = await guest.mustInside(["stat", "-c", "%C", `${data}/shared`]);
    const options = { seLinuxOptions: { level: "s0:c10,c20" } };
    await volumes.mount(podOf("recursive", "once", { ...options, seLinuxChangePolicy: "Recursive" }), signal);
    await volumes.mount(podOf("shares", "shared", options), signal);
    for (const [uid, volume] of [
      ["recursive", "once"],
      ["shares", "shared"],
    ] as const) {
      assert.equal(await labelOf(uid, volume), own.trim());
      assert.equal(volumes.mounted(uid).get("v")?.unlabelled, undefined);
    }
    await Promise.all(["recursive", "shares"].map((uid) => volumes.unmount(uid, signal)));
  });
});

/** Starts the driver in the guest, with its volumes. */
async function runDriver(guest: LoneGuest, program: string): Promise<void> {
  const known = Object.fromEntries(Object.keys(accessModes).map((ID) => [ID, { ID, Name: ID, Size: 1 << 20 }]));
  const folders = [
    ...Object.keys(accessModes).map((name) => `${data}/${name}`),
    `${rootDir}/pods`,
    `${rootDir}/plugins`,
  ];
  await guest.mustInside(["mkdir", "-p", ...folders]);
  await guest.mustInside(["sh", "-c", `cat > ${data}/state.json`], { stdin: JSON.stringify({ Volumes: known }) });
  await guest.mustInside(["sh", "-ec", "cat > /usr/local/bin/driver; chmod 755 /usr/local/bin/driver"], {
    stdin: await readFile(program),
    timeoutMs: 120_000,
  });
  const argv = ["/usr/local/bin/driver", `--endpoint=unix://${socket}`, "--nodeid=node", `--statedir=${data}`];
  await guest.mustInside(["systemd-run", "--unit=driver", ...argv]);
  await waitFor("the driver to listen", async () => (await guest.inside(["test", "-S", socket])).code === 0, {
    timeoutMs: 60_000,
  });
}
