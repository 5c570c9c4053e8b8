import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { commandLine } from "../harness/graftlet-run.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mount, secret } from "../harness/manifests.ts";
import { shell } from "../harness/pods.ts";

const iqn = "iqn.2026-01.dev.graftlet:disks";
const targetPortal = "127.0.0.1";
const password = "of-the-session-1";
const discoveryPassword = "of-the-discovery-1";
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

const target = (...argv: readonly string[]) => says("tgtadm", "--lld", "iscsi", ...argv);

/** The guest is the target, too: two disks, and a password for sessions. */
async function startTarget(): Promise<void> {
  await says("systemctl", "start", "tgt", "iscsid.socket");
  await target("--op", "new", "--mode", "target", "--tid", "1", "-T", iqn);
  for (const lun of ["1", "2"]) {
    await says("truncate", "-s", "64M", `/srv/disk-${lun}`);
    await target("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", lun, "-b", `/srv/disk-${lun}`);
  }
  await target("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL");
  await target("--op", "new", "--mode", "account", "--user", "node", "--password", password);
  await target("--op", "bind", "--mode", "account", "--tid", "1", "--user", "node");
  await target("--op", "new", "--mode", "account", "--user", "finder", "--password", discoveryPassword);
  const session = { "node.session.auth.username": "node", "node.session.auth.password": password };
  const discovery = (value: string) => ({
    "discovery.sendtargets.auth.username": "finder",
    "discovery.sendtargets.auth.password": value,
  });
  await lab.cluster.apply([
    storageClass,
    secret("chap", session),
    secret("wrong", { ...session, "node.session.auth.password": "wrong-password-1" }),
    secret("discovery-chap", { ...session, ...discovery(discoveryPassword) }),
    secret("discovery-wrong", { ...session, ...discovery("wrong-password-2") }),
  ]);
}

/** Makes the target demand CHAP of discoveries, too, until the result is disposed: an account that is bound to no target is
 *  theirs. */
async function demandDiscoveryChap(): Promise<AsyncDisposable> {
  const account = (op: string) => target("--op", op, "--mode", "account", "--user", "finder");
  await account("bind");
  return { [Symbol.asyncDispose]: async () => void (await account("unbind")) };
}

const source = (name: string, lun = 1) => ({
  targetPortal,
  iqn,
  lun,
  chapAuthSession: true,
  secretRef: { name, ...(lun > 1 && { namespace: "default" }) },
});

const discoverySource = (name: string) => ({ ...source(name), chapAuthDiscovery: true });

/** The graftlet that runs: the first test starts another one. */
const agent = () => second ?? lab.agent;

/** Expects that no password is in graftlet's log or in an event. */
async function assertNoPasswords(): Promise<void> {
  const passwords = /(wrong-password|of-the-session|of-the-discovery)-\d/;
  assert.doesNotMatch(await lab.cluster.mustKubectl(["get", "events", "-A", "-o", "json"]), passwords);
  assert.doesNotMatch(agent().log(), passwords);
}

/** Waits until nothing of any disk is left: no session, no record, no password, no mount, no directory. */
async function untilNothingIsLeft(): Promise<void> {
  const { cluster } = lab;
  const root = `${lab.agent.rootDir}/plugins/kubernetes.io/iscsi`;
  const records = "iscsiadm -m session; iscsiadm -m node; grep -rE 'of-the-|wrong-password' /etc/iscsi";
  const look = `${records}; grep -F ${iqn} /proc/mounts; find ${root} -name '*-lun-*'`;
  let left = "";
  const isClean = async () => {
    left = (await cluster.runInside(["sh", "-c", `{ ${look}; } 2>/dev/null`])).stdout;
    return left === "";
  };
  await cluster.waitFor("all sessions, records and directories to go", isClean, { explain: () => left });
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
    const { pods } = lab;
    await pods.create("refused", {
      volumes: [{ name: "v", iscsi: source("wrong") }],
      containers: [shell("true", { volumeMounts })],
    });
    await pods.event(
      "refused",
      "FailedMount",
      /^MountVolume\.WaitForAttach failed for volume "v" : failed to get any path for iscsi disk, last err seen:\niscsi: failed to attach disk: Error: [^]*authorization failure/,
    );
    await assertNoPasswords();
    const gone = pods.gone("refused");
    await pods.remove("refused", 1);
    await gone;
    await untilNothingIsLeft();
  });

  test("an iSCSI volume is found with discovery CHAP at a target that demands it", async () => {
    const { cluster, pods } = lab;
    await using _ = await demandDiscoveryChap();
    const without = await cluster.runInside(["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", targetPortal]);
    assert.match(without.stderr, /authorization failure/);
    await pods.create("finds", {
      volumes: [{ name: "v", iscsi: discoverySource("discovery-chap") }],
      containers: [shell("cat /v/file; exec sleep 3600", { volumeMounts })],
    });
    await pods.logged("finds", /^kept$/m);
    await assertNoPasswords();
    const gone = pods.gone("finds");
    await pods.remove("finds", 1);
    await gone;
    await untilNothingIsLeft();
  });

  test("an iSCSI volume with a wrong discovery password keeps the pod waiting, with iscsiadm's message and without the password", async () => {
    const { pods } = lab;
    await using _ = await demandDiscoveryChap();
    await pods.create("unfound", {
      volumes: [{ name: "v", iscsi: discoverySource("discovery-wrong") }],
      containers: [shell("true", { volumeMounts })],
    });
    await pods.event(
      "unfound",
      "FailedMount",
      /^MountVolume\.WaitForAttach failed for volume "v" : failed to get any path for iscsi disk, last err seen:\niscsi: failed to sendtargets to portal 127\.0\.0\.1:3260 output: [^]*authorization failure[^]*, err exit status 24$/,
    );
    await assertNoPasswords();
    const gone = pods.gone("unfound");
    await pods.remove("unfound", 1);
    await gone;
    await untilNothingIsLeft();
  });

  test("graftlet remove unmounts the disks of the node, and logs out of their target", async () => {
    const { cluster, pods } = lab;
    await Promise.all([
      pods.create("mounts", {
        volumes: [{ name: "v", iscsi: source("chap") }],
        containers: [shell("cat /v/file; exec sleep 3600", { volumeMounts })],
      }),
      pods.create("maps", {
        volumes: [{ name: "v", persistentVolumeClaim: { claimName: "raw" } }],
        containers: [
          shell("head -c 5 /dev/raw; echo; exec sleep 3600", {
            volumeDevices: [{ name: "v", devicePath: "/dev/raw" }],
          }),
        ],
      }),
    ]);
    await pods.logged("mounts", /^kept$/m);
    await pods.logged("maps", /^bytes$/m);
    const { program, flags } = commandLine(agent());
    assert.equal(await agent().stop(), true);
    const { code, stdout, stderr } = await cluster.runAtAgent([...program, "remove", ...flags, "--yes"], {
      timeoutMs: 120_000,
    });
    assert.equal(code, 0, `${stdout}${stderr}`);
    const disk = (lun: number) => `iSCSI disk iface-default/${targetPortal}:3260-${iqn}-lun-${lun}`;
    for (const lun of [1, 2]) assert.ok(stdout.includes(`removed ${disk(lun)}\n`), `${stdout}${stderr}`);
    await untilNothingIsLeft();
  });
});
