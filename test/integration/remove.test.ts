import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import { PodSandboxConfig } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { dockerEngine } from "../harness/docker-engine.ts";
import { commandLine } from "../harness/graftlet-run.ts";
import { gained } from "../harness/holdings.ts";
import { images, openPods, shell } from "../harness/pods.ts";
import { hasDocker, hasSystemd, isRemote } from "../harness/runtime-daemon.ts";
import { targetTraces } from "../harness/target-traces.ts";

/** Where what precious stands in for lies on the target, with a mount of its own. */
const preciousOf = ({ layout }: Cluster) => join(layout.dir, "precious");

describe("graftlet remove", { timeout: 800_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  /** The command line that the node was started with, from the flags on, and what comes before. */
  let flags: readonly string[];
  let program: readonly string[];
  let rootDir: string;
  /** What the target had before the node came, and of what strangers made since. */
  let others: ReadonlySet<string>;

  const remove = async (...more: readonly string[]) => {
    const { code, stdout, stderr } = await cluster.runAtAgent([...program, "remove", ...flags, ...more], {
      timeoutMs: 120_000,
    });
    return { code, said: `${stdout}${stderr}`.trim().split("\n") };
  };
  const inside = async (script: string) => {
    const { code, stderr } = await cluster.runInside(["sh", "-ec", script]);
    assert.equal(code, 0, stderr);
  };

  before(async () => {
    cluster = await startCluster({ name: "remove" });
    await makeStrangers(cluster);
    rootDir = join(cluster.layout.kubeletRoot, "made", "here");
    others = await targetTraces(cluster);
    agent = await startGraftlet(cluster, {
      args: [`--root-dir=${rootDir}`],
      config: { podLogsDir: join(cluster.layout.podLogs, "made") },
      ...(isRemote(cluster.provider) && { providerConfig: { rootDir } }),
    });
    ({ program, flags } = commandLine(agent));
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    if (cluster) await cluster.runInside(["sh", "-c", `umount -R ${preciousOf(cluster)}`]);
    await cluster?.[Symbol.asyncDispose]();
  });

  test("removes nothing while graftlet runs", async () => {
    await using pods = await openPods(cluster);
    await pods.api.create(`/api/v1/namespaces/${pods.namespace}/configmaps`, {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "settings" },
      data: { color: "green" },
    });
    const volumes = [
      { name: "memory", emptyDir: { medium: "Memory" } },
      { name: "disk", emptyDir: {} },
      { name: "settings", configMap: { name: "settings" } },
    ];
    const volumeMounts = volumes.map(({ name }) => ({ name, mountPath: `/${name}` }));
    await Promise.all([
      pods.create("volumes", {
        volumes,
        containers: [shell("echo kept > /disk/file; sleep infinity", { volumeMounts })],
      }),
      pods.create("burstable", {
        containers: [
          {
            resources: { requests: { cpu: "10m" } },
            ports: [{ containerPort: 80, hostPort: 18082, hostIP: "127.0.0.1" }],
          },
          {},
        ],
      }),
      pods.create("ended", { restartPolicy: "Never", containers: [shell("echo done")] }),
      pods.create("stubborn", {
        terminationGracePeriodSeconds: 3,
        containers: [shell("trap '' TERM; while true; do sleep 1; done")],
      }),
    ]);
    await Promise.all(["volumes", "burstable", "stubborn"].map((name) => pods.ready(name)));
    await pods.until("ended", "to succeed", ({ status }) => status?.phase === "Succeeded");
    const uid = (await pods.ready("volumes")).metadata.uid;
    const { code, said } = await remove("--yes");
    assert.equal(code, 1);
    assert.match(said.at(-1) ?? "", /^graftlet: nothing was removed: --root-dir ".*" is in use by another graftlet /);
    assert.equal(existsSync(join(rootDir, "pods", uid)), true);
    assert.equal((await pods.api.get<{ items: unknown[] }>("/api/v1/pods")).items.length, 4);

    // Somebody uses pods' directories for things of their own.
    const directory = join(rootDir, "pods", uid);
    symlinkSync(preciousOf(cluster), join(directory, "volumes", "link"));
    await inside(`mkdir ${directory}/bound; mount --rbind ${preciousOf(cluster)} ${directory}/bound`);
    assert.equal(existsSync(join(cluster.root, directory, "bound", "inner", "file")), true);
  });

  test("lists everything without confirmation, and removes nothing", async () => {
    assert.equal(await agent.stop(), true);
    // While it ran it would have ended a pod that it does not know in a runtime of its own.
    const withoutStranger = await targetTraces(cluster);
    await startStranger(cluster);
    const standing = await targetTraces(cluster);
    others = new Set([...others, ...gained(withoutStranger, standing)]);
    const { code, said } = await remove();
    assert.equal(code, 1);
    assert.equal(said.at(-1), "nothing was removed; run this with --yes to remove it");
    for (const name of ["volumes", "burstable", "stubborn", "ended"])
      assert.ok(
        said.some((line) => line.includes(`container main of pod default/${name}, `)),
        said.join("\n"),
      );
    assert.ok(said.includes(`  directory ${rootDir}/graftlet`), said.join("\n"));
    const ofDocker = hasDocker(cluster.provider);
    assert.equal(said.includes("  1 iptables rule for host ports on 127.0.0.0/8"), ofDocker, said.join("\n"));
    assert.deepEqual(
      [gained(standing, await targetTraces(cluster)), gained(await targetTraces(cluster), standing)],
      [[], []],
    );
  });

  test("keeps the directory of a pod with a mount that cannot be unmounted, and removes the rest", async () => {
    const [uid] = (await cluster.mustKubectl(["get", "pod", "volumes", "--output=jsonpath={.metadata.uid}"])).split(
      "\n",
    );
    const directory = join(rootDir, "pods", uid ?? "");
    const user = cluster.spawnInside(["sleep", "infinity"], { cwd: join(directory, "bound") });
    try {
      const { code, said } = await remove("--yes");
      assert.equal(code, 1);
      assert.ok(
        said.some((line) => line.startsWith(`cannot remove mount ${directory}/bound: `)),
        said.join("\n"),
      );
      assert.ok(said.includes(`kept because of a failure: directory ${directory}`), said.join("\n"));
      assert.ok(existsSync(join(rootDir, "graftlet", "node.json")));
      strangersStand(cluster);
    } finally {
      user.kill("SIGKILL");
      await new Promise((resolve) => user.once("exit", resolve));
    }
  });

  test("removes the rest once the mount is gone, and nothing else; a second run finds nothing", async () => {
    const { code, said } = await remove("--yes");
    assert.equal(code, 0, said.join("\n"));
    assert.equal(said.at(-1), `if the Node object is still in the cluster: kubectl delete node ${cluster.nodeName}`);
    const now = await targetTraces(cluster);
    assert.deepEqual([gained(others, now), gained(now, others)], [[], []]);
    strangersStand(cluster);
    const again = await remove("--yes");
    assert.deepEqual([again.code, again.said[0]], [0, `nothing of node ${cluster.nodeName} is left`]);
  });
});

/** Puts beside the node what is not its: files, logs, a cgroup; and a precious folder with a mount in it that
 *  others may see, as all mounts of a machine with systemd are. */
async function makeStrangers(cluster: Cluster): Promise<void> {
  const { layout } = cluster;
  const precious = preciousOf(cluster);
  writeFileSync(join(layout.kubeletRoot, "stranger"), "");
  mkdirSync(join(layout.podLogs, "stranger_logs_0"));
  createCgroup({ ...layout, cgroup: join(layout.cgroup, "stranger") });
  mkdirSync(join(precious, "inner"), { recursive: true });
  writeFileSync(join(precious, "file"), "precious");
  const { code, stderr } = await cluster.runInside([
    "sh",
    "-ec",
    `mount --bind ${precious} ${precious}
     mount --make-shared ${precious}
     mount -t tmpfs tmpfs ${precious}/inner
     echo precious > ${precious}/inner/file`,
  ]);
  assert.equal(code, 0, stderr);
}

/** Starts what is not the node's in its runtime: a container and a network of somebody's, or a pod of another node's. */
async function startStranger(cluster: Cluster): Promise<void> {
  const { layout } = cluster;
  if (hasDocker(cluster.provider)) {
    const engine = dockerEngine(cluster);
    await engine.docker(["network", "create", "stranger"]);
    await engine.docker([
      "run",
      "--detach",
      "--name=stranger",
      "--network=stranger",
      images.busybox,
      "sleep",
      "infinity",
    ]);
    return;
  }
  const clock = systemClock();
  await using runtime = criRuntime({
    runtimeSocket: cluster.runtimeSocket,
    imageSocket: cluster.runtimeSocket,
    requestTimeoutMs: 60_000,
    host: localHost({ clock }),
    clock,
    log: createLogger(0),
  });
  const uid = "99999999-9999-4999-8999-999999999999";
  const labels = {
    "io.kubernetes.pod.name": "stranger",
    "io.kubernetes.pod.namespace": "elsewhere",
    "io.kubernetes.pod.uid": uid,
    "graftlet.dev/node": "another",
  };
  const config = PodSandboxConfig.fromPartial({
    metadata: { name: "stranger", namespace: "elsewhere", uid, attempt: 0 },
    logDirectory: join(layout.podLogs, "stranger_logs_0"),
    linux: { cgroupParent: hasSystemd(cluster.provider) ? "/stranger.slice" : join(layout.cgroup, "stranger") },
    labels,
  });
  await runtime.runPodSandbox({ config, runtimeHandler: "" }, AbortSignal.timeout(60_000));
}

/** Expects the precious folder as it was, its mount included. */
function strangersStand(cluster: Cluster): void {
  const read = (path: string) => readFileSync(join(cluster.root, preciousOf(cluster), path), "utf8").trim();
  assert.deepEqual([read("file"), read("inner/file")], ["precious", "precious"]);
}
