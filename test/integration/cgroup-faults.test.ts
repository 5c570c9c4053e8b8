import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Pods, type SpecDraft, openPods, shell, statusOf } from "../harness/pods.ts";
import { hasSystemd } from "../harness/runtime-daemon.ts";
import { type TargetCgroups, targetCgroups } from "../harness/target-cgroups.ts";

/** A round of the agent's, and something to spare, milliseconds. */
const roundMs = 90_000;
const Mi = 2 ** 20;

/** Runs a script of a shell for each directory that a cgroup has, as `$dir`. */
const everywhere = (path: string, script: string) =>
  `for root in /sys/fs/cgroup /sys/fs/cgroup/*; do dir=$root${path}; [ -d "$dir" ] || continue
${script}
done`;

describe("cgroups changed by other programs", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let cgroups: TargetCgroups;
  let agent: Agent | undefined;

  const there = async (script: string): Promise<string> => {
    const { code, stdout, stderr } = await cluster.runInside(["sh", "-c", script]);
    assert.equal(code, 0, stderr);
    return stdout.trim();
  };
  const tiers: Readonly<Record<string, string>> = {
    Guaranteed: "",
    Burstable: "burstable/",
    BestEffort: "besteffort/",
  };
  const cgroupOf = ({ metadata, status }: Pod) => `kubepods/${tiers[status?.qosClass ?? ""]}pod${metadata.uid}`;
  const isThere = async (name: string) => (await there(everywhere(cgroups.pathOf(name), 'echo "$dir"'))).length > 0;
  const number = async (name: string, ...files: readonly string[]) => Number((await cgroups.read([name], ...files))[0]);
  const memoryLimit = (name: string) => number(name, "memory.limit_in_bytes", "memory.max");
  const shares = (name: string) => number(name, "cpu.shares", "cpu.weight");
  /** Removes a cgroup behind the agent's back: systemd ends what runs there, else it runs on somewhere else. */
  const takeAway = async (name: string) => {
    const path = cgroups.pathOf(name);
    if (hasSystemd(cluster.provider)) await there(`systemctl stop ${path.split("/").at(-1)}`);
    const empty = `find "$dir" -name cgroup.procs -exec cat {} + | while read -r pid; do echo "$pid" >$root/cgroup.procs; done`;
    const removal = everywhere(path, `${empty}\nfind "$dir" -depth -type d -exec rmdir {} +`);
    // A container that the agent starts again meanwhile has a process there.
    await cluster.waitFor("the cgroup to go", async () => (await cluster.runInside(["sh", "-c", removal])).code === 0);
  };
  const asking: SpecDraft = {
    containers: [
      shell("exec sleep 3600", {
        resources: { requests: { cpu: "200m", memory: "32Mi" }, limits: { cpu: "400m", memory: "64Mi" } },
      }),
    ],
  };

  before(async () => {
    cluster = await startCluster({ name: "cgroup-faults" });
    pods = await openPods(cluster);
    cgroups = targetCgroups(cluster);
    agent = await startGraftlet(cluster);
    await pods.create("bystander", {});
    await pods.ready("bystander");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("recreates a removed QoS cgroup with the next pod, and restores its weight", async () => {
    await pods.create("first", asking);
    await pods.ready("first");
    const weight = await shares("kubepods/burstable");
    const gone = pods.gone("first");
    await pods.remove("first", 0);
    await gone;
    // The node may still be setting the weight that is right without the pod, and so creates it again once.
    await cluster.waitFor("the tier to be gone", async () => {
      await takeAway("kubepods/burstable");
      return !(await isThere("kubepods/burstable"));
    });
    await pods.create("second", asking);
    const pod = await pods.ready("second");
    await cluster.waitFor("the tier's weight", async () => (await shares("kubepods/burstable")) === weight, roundMs);
    assert.equal(await memoryLimit(cgroupOf(pod)), 64 * Mi);
  });

  test("restores the limits of a removed pod cgroup within a minute, even if the runtime has recreated it", async () => {
    const pod = await pods.ready("second");
    const group = cgroupOf(pod);
    await takeAway(group);
    await cluster.waitFor(
      "the pod's limit",
      async () => (await isThere(group)) && (await memoryLimit(group)) === 64 * Mi,
      roundMs,
    );
    await pods.ready("second");
  });

  test("kills foreign processes in a pod's cgroup when the pod ends", async () => {
    await pods.create("host", asking);
    const pod = await pods.ready("host");
    const path = cgroups.pathOf(cgroupOf(pod));
    const pid = await there(`sleep 3600 >/dev/null 2>&1 </dev/null & pid=$!; echo $pid
      ${everywhere(
        path,
        `mkdir "$dir/foreign"; for file in cpuset.cpus cpuset.mems; do
        [ ! -e "$dir/foreign/$file" ] || cat "$dir/$file" >"$dir/foreign/$file"; done; echo $pid >"$dir/foreign/cgroup.procs"`,
      )}`);
    // One that has ended has no command line, until its parent hears of its end.
    const runs = async () => (await cluster.runInside(["cat", `/proc/${pid}/cmdline`])).stdout.startsWith("sleep");
    assert.equal(await runs(), true);
    const gone = pods.gone("host");
    await pods.remove("host", 0);
    await gone;
    await cluster.waitFor("the cgroup to be gone", async () => !(await isThere(cgroupOf(pod))));
    assert.equal(await runs(), false);
  });

  test("while cgroups are read-only, running pods keep running and a new pod waits with a reason; it starts once they are writable", async () => {
    const all = "$(awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts)";
    const remount = (how: "ro" | "rw") => there(`for path in ${all}; do mount -o remount,bind,${how} $path; done`);
    const before = statusOf(await pods.ready("bystander"))?.containerID;
    await remount("ro");
    try {
      await pods.create("late", asking);
      const { message } = await pods.event("late", "FailedCreatePodContainer");
      assert.match(
        message ?? "",
        /^unable to ensure pod container exists: failed to create container for \[(\S+ )?kubepods burstable pod[-0-9a-f]+\] : .*(read-only|EROFS)/i,
      );
      assert.equal(statusOf(await pods.ready("bystander"))?.containerID, before);
    } finally {
      await remount("rw");
    }
    const pod = await pods.ready("late");
    assert.equal(await memoryLimit(cgroupOf(pod)), 64 * Mi);
  });
});
