import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { sshHost } from "../../providers/ssh/host.ts";
import { readSshConfig } from "../../providers/ssh/config.ts";
import { createCsiDriverClient } from "../../src/csi/client.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { hasSelinux } from "../../src/host/exists.ts";
import type { PersistentVolume, PersistentVolumeClaim, Pod } from "../../src/objects.ts";
import { allocatedPod } from "../../src/roles.ts";
import type { Host } from "../../src/seams/host.ts";
import { createVolumes, type Volumes } from "../../src/volumes/volumes.ts";
import { unmeasured } from "../fakes/measures.ts";
import { buildProgram } from "../harness/tools.ts";
import { waitFor } from "../harness/wait.ts";
import { bootLoneGuest, type LoneGuest } from "../machines/lone-guest.ts";

const rootDir = "/var/lib/kubelet";
const driver = "hostpath.csi.k8s.io";
const socket = "/run/csi.sock";
const data = "/var/lib/csi-data";
/** Where a container sees its volume. */
const mountPath = "/v";
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
  const volumeMounts = [{ name: "v", mountPath }];
  return allocatedPod({
    metadata: { name: uid, namespace: "default", uid },
    spec: {
      ...(securityContext && { securityContext }),
      volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
      containers: [{ name: "c", image: "i", volumeMounts }],
    },
  });
}

// A machine that enforces SELinux, with a CSI driver on it, as a node has them; what the node knows of the cluster is the test's.
describe("volumes on a target that enforces SELinux", { timeout: 1_800_000 }, () => {
  const owned = new AsyncDisposableStack();
  let guest: LoneGuest;
  let host: Host;
  let volumes: Volumes;
  let events: string[];
  const { signal } = new AbortController();

  before(async () => {
    guest = owned.use(await bootLoneGuest({ selinux: true }, console.error));
    const program = await buildProgram({ name: "hostpathplugin", module: "csi" }, console.error);
    await runDriver(guest, program);
    host = owned.use(sshHost({ config: readSshConfig(guest.login), clock, log: silentLog() }));
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

  /** Runs a program of busybox as a container's process with this level does, which sees a pod's volume at its mount path. */
  const inContainer = async (uid: string, volume: string, level: string, ...program: readonly string[]) => {
    const script = `mount --bind ${path(uid, volume)} ${mountPath}; exec runcon system_u:system_r:container_t:${level} busybox "$@"`;
    const { code, stderr } = await guest.inside(["unshare", "--mount", "sh", "-ec", script, "sh", ...program]);
    return code === 0 ? "done" : stderr.trim();
  };
  /** Expects that what the node has written has the types that the target's policy has for these paths. */
  const assertTypesOfPolicy = async () => {
    assert.equal(await guest.mustInside(["restorecon", "-R", "-n", "-v", rootDir]), "");
  };

  test("the target enforces SELinux, and files have its policy's labels", async () => {
    assert.equal(await guest.mustInside(["getenforce"]), "Enforcing\n");
    assert.match(await guest.mustInside(["stat", "-c", "%C", "/etc/passwd"]), /^system_u:object_r:etc_t:s0$/m);
    assert.equal(await hasSelinux(host.fs, signal), true);
  });

  test("a socket that the policy keeps sshd from is reached, also after sshd has connected to another one", async () => {
    for (const unix of ["/run/dbus/system_bus_socket", socket]) (await host.dial({ unix }, signal)).destroy();
    assert.match(await guest.mustInside(["dmesg"]), /avc: +denied .* comm="sshd" name="csi\.sock" /);
  });

  test("the policy keeps sshd from listening below the root directory, where device plugins would register", async () => {
    assert.ok(host.listen);
    const listening = host.listen({ unix: `${rootDir}/plugin.sock` }, (stream) => stream.destroy(), signal);
    await assert.rejects(listening, { code: "permission_denied", message: /^the target refuses to listen on / });
  });

  test("a ReadWriteOncePod volume is mounted with its pod's label, which the target's policy completes", async () => {
    await volumes.mount(podOf("first", "once", { seLinuxOptions: { level: "s0:c10,c20" } }), signal);
    assert.equal(await labelOf("first", "once"), label("s0:c10,c20"));
    assert.match(
      await guest.mustInside(["grep", path("first", "once"), "/proc/mounts"]),
      /tmpfs rw,.*context="?system_u:object_r:container_file_t:s0:c10,c20"?/,
    );
    assert.equal(volumes.mounted("first").get("v")?.unlabelled, true);
    await assertTypesOfPolicy();
  });

  test("a container with the pod's label uses the volume, and one with another label may not", async () => {
    const file = `${mountPath}/of-container`;
    assert.equal(await inContainer("first", "once", "s0:c10,c20", "touch", file), "done");
    assert.equal(await inContainer("first", "once", "s0:c10,c20", "cat", file), "done");
    const denied = `cat: can't open '${file}': Permission denied`;
    assert.equal(await inContainer("first", "once", "s0:c30,c40", "cat", file), denied);
  });

  test("a pod with another label waits until the volume is free, then gets it with its own label", async () => {
    const second = podOf("second", "once", { seLinuxOptions: { level: "s0:c30,c40" } });
    await assert.rejects(volumes.mount(second, signal), {
      message: `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: conflicting SELinux labels of volume once: "${label("s0:c10,c20")}" and "${label("s0:c30,c40")}"`,
    });
    await volumes.unmount("first", signal);
    await volumes.mount(second, signal);
    assert.equal(await labelOf("second", "once"), label("s0:c30,c40"));
    const file = `${mountPath}/of-container`;
    assert.equal(await inContainer("second", "once", "s0:c30,c40", "touch", file), "done");
    assert.equal(await inContainer("second", "once", "s0:c10,c20", "touch", file), `touch: ${file}: Permission denied`);
    await volumes.unmount("second", signal);
    assert.equal((await guest.inside(["grep", "-c", "kubernetes.io", "/proc/mounts"])).stdout, "0\n");
  });

  test("with policy Recursive, or another access mode, the volume keeps the labels of its files, which containers may not use", async () => {
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
      const file = `${mountPath}/${uid}`;
      const denied = `cat: can't open '${file}': Permission denied`;
      assert.equal(await inContainer(uid, volume, "s0:c10,c20", "cat", file), denied);
    }
    await assertTypesOfPolicy();
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
    mountPath,
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
