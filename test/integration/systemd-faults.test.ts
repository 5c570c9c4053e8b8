import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Node, Pod } from "../../src/objects.ts";
import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import { type Agent, type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { writeContainerdConfig } from "../harness/containerd.ts";
import { type Pods, type SpecDraft, openPods, shell, statusOf } from "../harness/pods.ts";
import { type TargetCgroups, targetCgroups } from "../harness/target-cgroups.ts";
import { addTargetUser } from "../harness/target-user.ts";

const Mi = 2 ** 20;

describe("a target with a faulty systemd, cgroup driver or cgroup hierarchy", { timeout: 900_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;

  const restart = async (options: AgentOptions = {}) => {
    if (agent) assert.equal(await agent.stop(), true);
    agent = undefined;
    agent = await startGraftlet(cluster, options);
  };
  const there = async (...argv: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await cluster.runInside(argv);
    assert.equal(code, 0, `${argv.join(" ")}: ${stderr}`);
    return stdout.trim();
  };
  const limited: SpecDraft = {
    containers: [shell("exec sleep 3600", { resources: { limits: { cpu: "100m", memory: "64Mi" } } })],
  };
  const cgroupOf = (pod: Pod) => `kubepods/pod${pod.metadata.uid}`;
  const memoryLimit = async (cgroups: TargetCgroups, pod: Pod) =>
    Number((await cgroups.read([cgroupOf(pod)], "memory.limit_in_bytes", "memory.max"))[0]);
  const isThere = async (path: string) =>
    (await cluster.runInside(["sh", "-c", `ls -d /sys/fs/cgroup${path} /sys/fs/cgroup/*${path}`])).stdout !== "";
  /** A pod's whole life: with its cgroup, and without a trace of it. */
  const lives = async (name: string) => {
    const cgroups = targetCgroups(cluster);
    await pods.create(name, limited);
    const pod = await pods.ready(name);
    assert.equal(await memoryLimit(cgroups, pod), 64 * Mi);
    const gone = pods.gone(name);
    await pods.remove(name, 0);
    await gone;
    await cluster.waitFor("its cgroup to be gone", async () => !(await isThere(cgroups.pathOf(cgroupOf(pod)))));
  };

  before(async () => {
    cluster = await startCluster({ name: "systemd-faults", provider: "ssh-systemd" });
    pods = await openPods(cluster);
    await restart();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("creates slices with systemctl without a system bus, and over the bus once it is back", async () => {
    await lives("before");
    await there("systemctl", "stop", "dbus.socket", "dbus.service");
    assert.notEqual((await cluster.runInside(["busctl", "status"])).code, 0);
    await lives("meanwhile");
    await there("systemctl", "start", "dbus.socket", "dbus.service");
    await lives("afterwards");
    assert.equal(await there("systemctl", "is-system-running"), "running");
  });

  test("if the bus denies requests, creates slices with systemctl; a new pod waits for the runtime, and others keep running", async () => {
    await pods.create("standing", limited);
    await pods.ready("standing");
    const policy = "/etc/dbus-1/system.d/denied.conf";
    const manager = 'send_destination="org.freedesktop.systemd1" send_interface="org.freedesktop.systemd1.Manager"';
    const denied = ["StartTransientUnit", "SetUnitProperties", "StopUnit"].map(
      (member) => `<deny ${manager} send_member="${member}"/>`,
    );
    const reload = ["busctl", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"];
    await there(
      "sh",
      "-c",
      `echo '<busconfig><policy context="mandatory">${denied.join("")}</policy></busconfig>' > ${policy}`,
    );
    await there(...reload, "ReloadConfig");
    const wish = ["busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"];
    const stop = [...wish, "org.freedesktop.systemd1.Manager", "StopUnit", "ss", "nothing.slice", "replace"];
    assert.match((await cluster.runInside(stop)).stderr, /denied/i);
    await pods.create("denied", limited);
    const { metadata } = await pods.until("denied", "to be there", ({ spec }) => spec.nodeName !== undefined);
    const cgroups = targetCgroups(cluster);
    const slice = cgroups.pathOf(`kubepods/pod${metadata.uid}`);
    await cluster.waitFor("its slice", () => isThere(slice));
    const events = `/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=denied`;
    await cluster.waitFor("the runtime's words", async () =>
      (await pods.api.get<{ items: CoreEvent[] }>(events)).items.some(
        ({ reason, message = "" }) => reason === "FailedCreatePodSandBox" && /Rejected send message/.test(message),
      ),
    );
    const standing = await pods.ready("standing");
    assert.equal(statusOf(standing)?.restartCount, 0);
    await there("rm", policy);
    await there(...reload, "ReloadConfig");
    assert.equal(await memoryLimit(cgroups, await pods.ready("denied")), 64 * Mi);
    for (const name of ["denied", "standing"]) {
      const gone = pods.gone(name);
      await pods.remove(name, 0);
      await gone;
    }
    await cluster.waitFor("its slice to be gone", async () => !(await isThere(slice)));
  });

  test("a login with sudo calls systemd as root, although the bus knows it as an unprivileged user", async () => {
    const { name } = await addTargetUser(cluster, "deploy", "sudo");
    await restart({ providerConfig: { user: name } });
    const relay = async () =>
      (await cluster.runInside(["pgrep", "--uid", "root", "--full", "^systemd-stdio-bridge"])).code === 0;
    await Promise.all([lives("by-sudo"), cluster.waitFor("a relay to the bus that root runs", relay)]);
    await restart();
  });

  test("pods stay in their cgroups after a change of the cgroup driver, and their old cgroups are removed with them", async () => {
    const switched = async (driver: CgroupDriver) => {
      if (agent) assert.equal(await agent.stop(), true);
      agent = undefined;
      await cluster.killRuntime();
      writeContainerdConfig(cluster.layout, driver);
      await cluster.startRuntime();
      await restart({ config: { cgroupDriver: driver } });
    };
    const slices = targetCgroups(cluster, "systemd");
    const files = targetCgroups(cluster, "cgroupfs");
    const change = async (name: string, from: TargetCgroups, to: TargetCgroups, driver: CgroupDriver) => {
      await pods.create(name, limited);
      const pod = await pods.ready(name);
      assert.equal(await memoryLimit(from, pod), 64 * Mi);
      const before = agent?.log().length;
      await switched(driver);
      const again = await pods.ready(name);
      assert.deepEqual([statusOf(again)?.containerID, statusOf(again)?.restartCount], [statusOf(pod)?.containerID, 0]);
      await pods.create(`${name}-new`, limited);
      assert.equal(await memoryLimit(to, await pods.ready(`${name}-new`)), 64 * Mi);
      const said = agent
        ?.log()
        .slice(before)
        .match(/cgroup driver has changed/g);
      assert.equal(said?.length, 1);
      for (const each of [name, `${name}-new`]) {
        const gone = pods.gone(each);
        await pods.remove(each, 0);
        await gone;
      }
      await cluster.waitFor("the former cgroups to be gone", async () => !(await isThere(from.pathOf("kubepods"))));
    };
    await change("from-systemd", slices, files, "cgroupfs");
    await change("from-files", files, slices, "systemd");
    assert.doesNotMatch(await there("systemctl", "list-units", "--failed", "--plain", "--no-legend"), /kubepods/);
  });

  test("reports a configured cgroup driver that differs from the runtime's, and uses the runtime's", async () => {
    await restart({ config: { cgroupDriver: "cgroupfs" } });
    await lives("told-otherwise");
    const said = agent?.log().match(/"msg":"using the runtime's cgroup driver instead of the configured one"/g);
    assert.equal(said?.length, 1);
    assert.equal(await isThere("/kubepods"), false);
  });

  test("runs pods if an optional controller's hierarchy is missing, but starts no node if a required one is", async () => {
    const nodeEvents = async () => {
      const of = `involvedObject.kind=Node,involvedObject.name=${cluster.nodeName}`;
      return (await pods.api.get<{ items: CoreEvent[] }>(`/api/v1/events?fieldSelector=${of}`)).items;
    };
    await there("umount", "-l", "/sys/fs/cgroup/pids");
    await restart({ config: { podPidsLimit: 100 } });
    await cluster.waitFor("the node to say what cannot be limited", async () =>
      (await nodeEvents()).some(
        ({ message }) =>
          message ===
          'Failed to update Node Allocatable Limits ["kubepods"]: cannot set pids limit: container could not join or create cgroup',
      ),
    );
    await lives("unnumbered");
    if (agent) assert.equal(await agent.stop(), true);
    await there("umount", "-l", "/sys/fs/cgroup/memory");
    agent = await startGraftlet(cluster, { untilReady: false });
    await cluster.waitFor("the node to say why it is not Ready", async () => {
      const node = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
      const ready = node.status?.conditions?.find(({ type }) => type === "Ready");
      return (
        ready?.status === "False" &&
        ready.message === "system validation failed - Following Cgroup subsystem not mounted: [memory]"
      );
    });
  });
});
