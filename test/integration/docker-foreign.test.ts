import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, hastyRounds, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type DockerEngine, dockerEngine } from "../harness/docker-engine.ts";
import { type ImageStore, smallImageStore } from "../harness/image-store.ts";
import { openPods, type Pods, images, shell, statusOf } from "../harness/pods.ts";
import { keepingMemory, scarceMemory, untilEvicted } from "../harness/pressure.ts";

/** Image of others, which no pod has. */
const theirs = "docker.io/library/busybox:1.37";
/** Image that the node brings and has no use for later. */
const ours = "registry.k8s.io/e2e-test-images/kitten:1.8";

/** Digest of no bytes: a command that failed in a pipe has said none. */
const ofNothing = createHash("sha256").digest("hex");

// A daemon that others use, too: a running container, one that has ended, an image, a volume, a network.
describe("node-pressure eviction and garbage collection on a shared Docker Engine", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let engine: DockerEngine;
  let store: ImageStore;
  let agent: Agent;
  let pods: Pods;

  const digest = async (script: string): Promise<string> => {
    const docker = `${cluster.tools.path("docker")} --host unix://${cluster.layout.dockerSocket}`;
    const { code, stdout, stderr } = await cluster.runInside(["sh", "-ec", `${docker} ${script} | sha256sum`]);
    assert.equal(code, 0, stderr);
    assert.ok(!stdout.startsWith(ofNothing), `docker ${script} said nothing`);
    return stdout;
  };
  /** All that is others', byte for byte. */
  const foreign = async (): Promise<Readonly<Record<string, unknown>>> => {
    const volume = join(cluster.layout.docker, "data", "volumes", "their-data", "_data");
    const files = await cluster.runInside(["sh", "-ec", `tar -C ${volume} -c . | sha256sum`]);
    const containers = (await engine.containers()).filter(({ Labels }) => Labels["graftlet.dev/node"] === undefined);
    return {
      image: await digest(`image save ${theirs}`),
      running: await digest("export their-run"),
      ended: await digest("export their-end"),
      containers: containers.map(({ Names, Id, State }) => `${Names.join(" ")} ${Id} ${State}`).toSorted(),
      standing: await engine.standing("theirs"),
      volume: files.stdout,
      networks: (await engine.networks()).filter(({ Name }) => Name === "their-net").map(({ Id }) => Id),
      logs: await digest("logs their-run"),
    };
  };

  before(async () => {
    cluster = await startCluster({ name: "docker-foreign", provider: "docker" });
    engine = dockerEngine(cluster);
    store = await smallImageStore(cluster, 1024);
    pods = await openPods(cluster);
    const { docker } = engine;
    await docker(["pull", theirs]);
    await docker(["volume", "create", "their-data"]);
    await docker(["network", "create", "--subnet=10.99.0.0/24", "their-net"]);
    const common = ["--label=theirs", "--network=none", "--volume=their-data:/data"];
    const writes = "head -c 3000000 /dev/urandom | tee /data/$0 >/own; echo written";
    await docker([
      "run",
      "--detach",
      "--name=their-run",
      ...common,
      theirs,
      "sh",
      "-c",
      `${writes}; exec sleep 3600`,
      "a",
    ]);
    await docker(["run", "--detach", "--name=their-end", ...common, theirs, "sh", "-c", `${writes}; exit 3`, "b"]);
    await docker(["wait", "their-end"]);
    await cluster.waitFor(
      "their data to be written",
      async () => (await docker(["logs", "their-run"])) === "written\n",
    );
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("collect images and dead containers, evict a pod, and leave the containers of other owners alone", async () => {
    const untouched = await foreign();
    const pressing = {
      imageGCHighThresholdPercent: 2,
      imageGCLowThresholdPercent: 1,
      imageMinimumGCAge: "10ms",
      evictionPressureTransitionPeriod: "5s",
    };
    const start = async (config: object) => {
      agent = await startGraftlet(cluster, {
        config: { ...pressing, ...config },
        env: hastyRounds,
        args: ["--maximum-dead-containers-per-container=0", "--minimum-container-ttl-duration=0s", "-v=4"],
      });
    };
    await start({});
    const scarce = await scarceMemory(cluster, 300);
    await agent.stop();
    await start(scarce);

    await pods.create("once", { restartPolicy: "Never", containers: [shell("exec sleep infinity", { image: ours })] });
    await pods.create("crashing", { containers: [shell("exit 1", { image: images.busybox })] });
    await pods.ready("once");
    await Promise.all([pods.gone("once"), pods.remove("once", 0)]);
    await pods.until("crashing", "to have crashed twice", (pod) => (statusOf(pod)?.restartCount ?? 0) >= 2, 90_000);
    await pods.create("greedy", { ...keepingMemory(250), terminationGracePeriodSeconds: 1 });
    assert.equal((await untilEvicted(pods, "greedy")).status?.reason, "Evicted");

    await cluster.waitFor(`${ours} to be gone`, async () => !(await store.names()).includes(ours), {
      timeoutMs: 90_000,
      explain: async () => (await store.names()).join("\n"),
    });
    const dead = async () =>
      (await engine.containers("io.kubernetes.pod.name=crashing", "io.kubernetes.container.name=main")).filter(
        ({ State }) => State === "exited",
      ).length;
    await cluster.waitFor("the containers that crashed to be gone", async () => (await dead()) === 0, {
      timeoutMs: 120_000,
      everyMs: 300,
    });
    assert.deepEqual(await foreign(), untouched);
  });
});
