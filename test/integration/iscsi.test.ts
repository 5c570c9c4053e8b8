import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mount, secret } from "../harness/manifests.ts";
import { shell } from "../harness/pods.ts";

const iqn = "iqn.2026-01.dev.graftlet:disks";
const targetPortal = "127.0.0.1";
const password = "of-the-session-1";
const volumeMounts = [mount("v", { mountPath: "/v" })];

let lab: Lab;
let second: Agent | undefined;
before(async () => {
  lab = await startLab("iscsi");
  await startTarget();
});
after(async () => {
  await second?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

/** What a command says that must succeed in the guest. */
async function says(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await lab.cluster.runInside(argv);
  assert.equal(code, 0, `${argv.join(" ")}: ${stderr}`);
  return stdout.trim();
}

/** The guest is the target, too: two disks, and a password. */
async function startTarget(): Promise<void> {
  const target = (...argv: readonly string[]) => says("tgtadm", "--lld", "iscsi", ...argv);
  await says("systemctl", "start", "tgt", "iscsid.socket");
  await target("--op", "new", "--mode", "target", "--tid", "1", "-T", iqn);
  for (const lun of ["1", "2"]) {
    await says("truncate", "-s", "64M", `/srv/disk-${lun}`);
    await target("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", lun, "-b", `/srv/disk-${lun}`);
  }
  await target("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL");
  await target("--op", "new", "--mode", "account", "--user", "node", "--password", password);
  await target("--op", "bind", "--mode", "account", "--tid", "1", "--user", "node");
  await lab.cluster.apply([
    storageClass,
    secret("chap", { "node.session.auth.username": "node", "node.session.auth.password": password }),
    secret("wrong", { "node.session.auth.username": "node", "node.session.auth.password": "wrong-password-1" }),
  ]);
}

const source = (name: string, lun = 1) => ({
  targetPortal,
  iqn,
  lun,
  chapAuthSession: true,
  secretRef: { name, ...(lun > 1 && { namespace: "default" }) },
});

/** Waits until nothing of any disk is left: no session, no record, no mount, no directory. */
async function untilNothingIsLeft(): Promise<void> {
  const { cluster } = lab;
  const root = `${lab.agent.rootDir}/plugins/kubernetes.io/iscsi`;
  const look = `iscsiadm -m session; iscsiadm -m node; grep -F ${iqn} /proc/mounts; find ${root} -name '*-lun-*'`;
  await cluster.waitFor("all sessions, records and directories to go", async () => {
    const { stdout } = await cluster.runInside(["sh", "-c", `{ ${look}; } 2>/dev/null`]);
    return stdout === "";
  });
}

describe("an iSCSI volume", () => {
  test("an iSCSI volume is mounted with CHAP, keeps its data when graftlet restarts, and its session ends with its last pod", async () => {
    const { cluster, pods } = lab;
    await pods.create("writes", {
      volumes: [{ name: "v", iscsi: source("chap") }],
      securityContext: { fsGroup: 2000 },
      containers: [shell("echo kept >/v/file; ls -n /v/file; exec sleep 3600", { volumeMounts })],
    });
    await pods.ready("writes");
    await pods.logged("writes", /^-rw-r--r-- +1 0 +2000 .*file/);
    assert.match(await says("iscsiadm", "-m", "session"), new RegExp(`^tcp: \\[\\d+\\] ${targetPortal}:3260,1 ${iqn}`));
    const inUse = ["get", "node", cluster.nodeName, "-o", "jsonpath={.status.volumesInUse}"];
    assert.equal(await cluster.mustKubectl(inUse), `["kubernetes.io/iscsi/${targetPortal}:${iqn}:1"]`);
    assert.equal(await lab.agent.stop(), true);
    second = await startGraftlet(cluster);
    const gone = pods.gone("writes");
    await pods.remove("writes", 1);
    await gone;
    await untilNothingIsLeft();

    const claimed = { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "disk" } }] };
    const iscsi = { ...source("chap"), secretRef: { name: "chap", namespace: "default" } };
    await cluster.apply([persistentVolume("disk", { iscsi, mountOptions: ["noatime"] }), claim("disk", "disk")]);
    await pods.create("reads", { ...claimed, containers: [shell("cat /v/file; exec sleep 3600", { volumeMounts })] });
    await pods.logged("reads", /^kept$/m);
    assert.match(await says("grep", "-F", iqn, "/proc/mounts"), / ext4 \S*noatime/);
    await pods.remove("reads", 1);
    await untilNothingIsLeft();
  });

  test("an iSCSI volume with volumeMode Block is a device in the container", async () => {
    const { cluster, pods } = lab;
    const spec = { iscsi: source("chap", 2), volumeMode: "Block" };
    await cluster.apply([persistentVolume("raw", spec), claim("raw", "raw", { volumeMode: "Block" })]);
    const script = "blockdev --getsize64 /dev/raw; printf bytes >/dev/raw; sync; exec sleep 3600";
    await pods.create("raw", {
      volumes: [{ name: "v", persistentVolumeClaim: { claimName: "raw" } }],
      containers: [shell(script, { volumeDevices: [{ name: "v", devicePath: "/dev/raw" }] })],
    });
    await pods.logged("raw", /^67108864$/m);
    const gone = pods.gone("raw");
    await pods.remove("raw", 1);
    await gone;
    await untilNothingIsLeft();
    assert.equal(await says("head", "-c", "5", "/srv/disk-2"), "bytes");
  });

  test("an iSCSI volume with a wrong password keeps the pod waiting, with iscsiadm's message and without the password", async () => {
    const { cluster, pods } = lab;
    await pods.create("refused", {
      volumes: [{ name: "v", iscsi: source("wrong") }],
      containers: [shell("true", { volumeMounts })],
    });
    await pods.event(
      "refused",
      "FailedMount",
      /^MountVolume\.WaitForAttach failed for volume "v" : failed to get any path for iscsi disk, last err seen:\niscsi: failed to attach disk: Error: [^]*authorization failure/,
    );
    assert.doesNotMatch(await cluster.mustKubectl(["get", "events", "-o", "json"]), /wrong-password-1/);
    assert.doesNotMatch((second ?? lab.agent).log(), /wrong-password-1|of-the-session-1/);
    const gone = pods.gone("refused");
    await pods.remove("refused", 1);
    await gone;
    await untilNothingIsLeft();
  });
});
