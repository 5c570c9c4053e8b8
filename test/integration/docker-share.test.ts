import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { type DockerLab, startDockerLab } from "../harness/docker-lab.ts";
import { containerId, statusOf } from "../harness/pods.ts";
import { signalProcess, identify } from "../harness/processes.ts";
import { isRemote } from "../harness/runtime-daemon.ts";

// Two nodes on one Docker Engine: each has folders, a cgroup, a network and ports of its own, and its own pods only.
describe("two nodes on one Docker Engine", { timeout: 600_000 }, () => {
  let lab: DockerLab;
  let second: Agent;
  let folder: string;
  const nodes = ["node-1", "node-2"] as const;
  const first = ["one-a", "one-b", "one-c"];
  const others = ["two-a", "two-b", "two-c"];

  const startSecond = async (): Promise<Agent> => {
    const { layout, provider } = lab.cluster;
    const cgroup = join(layout.cgroup, "second");
    createCgroup({ ...layout, cgroup });
    const docker = { podCIDR: "10.244.7.0/24" };
    const rootDir = `${folder}/kubelet`;
    return startGraftlet(lab.cluster, {
      nodeName: "node-2",
      args: [`--root-dir=${rootDir}`],
      providerConfig: isRemote(provider) ? { rootDir, docker } : docker,
      config: {
        port: 10_350,
        healthzPort: 10_348,
        cgroupRoot: cgroup,
        podLogsDir: `${folder}/pod-logs`,
        staticPodPath: `${folder}/manifests`,
      },
    });
  };
  const standingOf = (node: string) => lab.engine.standing(`graftlet.dev/node=${node}`);
  const namesOn = async (node: string): Promise<string[]> => {
    const said = await lab.cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${node}/proxy/runningpods/`]);
    return (JSON.parse(said) as { items: { metadata: { name: string } }[] }).items.map(({ metadata }) => metadata.name);
  };

  before(async () => {
    lab = await startDockerLab("engine-share");
    folder = join(lab.cluster.layout.dir, "second");
    second = await startSecond();
    const { pods } = lab;
    const on = (name: string, nodeName: string) => pods.create(name, { nodeName });
    await Promise.all([...first.map((name) => on(name, "node-1")), ...others.map((name) => on(name, "node-2"))]);
    await Promise.all([...first, ...others].map((name) => pods.ready(name)));
  });
  after(async () => {
    await second?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("two nodes run their own pods in their own networks", async () => {
    const { cluster, engine, pods } = lab;
    assert.deepEqual((await namesOn("node-1")).sort(), first);
    assert.deepEqual((await namesOn("node-2")).sort(), others);
    for (const [node, names] of [
      ["node-1", first],
      ["node-2", others],
    ] as const) {
      const labelled = await engine.containers(`graftlet.dev/node=${node}`);
      assert.deepEqual(new Set(labelled.map(({ Labels }) => Labels["io.kubernetes.pod.name"])), new Set(names));
    }
    assert.equal((await engine.containers()).length, 2 * (first.length + others.length));
    const subnets = (await engine.networks()).flatMap(({ Labels, IPAM }) =>
      Labels["graftlet.dev/node"] ? [`${Labels["graftlet.dev/node"]} ${IPAM.Config?.[0]?.Subnet}`] : [],
    );
    assert.deepEqual(subnets.sort(), ["node-1 10.244.0.0/24", "node-2 10.244.7.0/24"]);
    for (const name of others) assert.match(pods.history(name).at(-1)?.status?.podIP ?? "", /^10\.244\.7\.\d+$/);
    assert.equal(readdirSync(join(cluster.layout.kubeletRoot, "pods")).length, first.length);
    assert.equal(readdirSync(join(folder, "kubelet", "pods")).length, others.length);
    assert.equal(await cluster.mustKubectl(["exec", "two-a", "--", "hostname"]), "two-a\n");
    assert.equal(await cluster.mustKubectl(["exec", "one-a", "--", "hostname"]), "one-a\n");
  });

  test("two nodes restart their own containers without disturbing the other's", async () => {
    const { engine, pods } = lab;
    const undisturbed = await standingOf("node-2");
    const before = await pods.ready("one-a");
    await engine.docker(["rm", "--force", containerId(before)]);
    await pods.until(
      "one-a",
      "to run again",
      (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.ready === true,
    );
    await Promise.all([pods.gone("one-b"), pods.remove("one-b", 0)]);
    await lab.cluster.waitFor(
      "one-b to be gone from the daemon",
      async () => (await engine.containers("io.kubernetes.pod.name=one-b")).length === 0,
    );
    assert.deepEqual(await standingOf("node-2"), undisturbed);
    assert.deepEqual((await namesOn("node-2")).sort(), others);
  });

  test("after a kill, two nodes find their own pods, and leave the other node's alone", async () => {
    const before = await Promise.all(nodes.map(standingOf));
    const agent = identify(second.pid);
    assert.ok(agent && signalProcess(agent, "SIGKILL"));
    await second.ended;
    second = await startSecond();
    await lab.cluster.waitFor("the pods of node-2", async () => (await namesOn("node-2")).length === others.length);
    assert.deepEqual(await Promise.all(nodes.map(standingOf)), before);
  });

  test("a node of two keeps its pods when all pods of the other node are removed", async () => {
    const { cluster, engine } = lab;
    const before = await standingOf("node-2");
    const own = ["one-a", "one-c"];
    await cluster.mustKubectl(["delete", "pod", ...own, "--grace-period=1", "--timeout=60s"], { timeoutMs: 90_000 });
    await cluster.waitFor(
      "the containers of node-1 to be gone",
      async () => (await engine.containers("graftlet.dev/node=node-1")).length === 0,
    );
    assert.deepEqual(await standingOf("node-2"), before);
    assert.deepEqual([(await namesOn("node-1")).sort(), (await namesOn("node-2")).sort()], [[], others]);
    for (const name of others)
      assert.equal(statusOf(lab.pods.history(name).at(-1) ?? assert.fail(name))?.restartCount, 0);
  });
});
