import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, hastyGarbage, hastyRounds, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { dockerEngine } from "../harness/docker-engine.ts";
import { type ImageStore, smallImageStore } from "../harness/image-store.ts";
import { openPods, type Pods, images, shell } from "../harness/pods.ts";
import { particulars } from "../harness/particulars.ts";
import { hasDocker, isRemote } from "../harness/runtime-daemon.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

const suite = "registry.k8s.io/e2e-test-images";
/** Images that pods of the node brought, and that none has any more. */
const lastUnused = `${suite}/nginx:1.27-0`;
const unused = [`${suite}/kitten:1.8`, `${suite}/nautilus:1.8`, lastUnused];
const ended = images.nonroot;
const late = images.agnhost;
/** Others' image, which a pod of the node pulled anew; on a containerd that others use their name for an image that the node brought. */
const theirs = "docker.io/library/busybox:1.37";
/** Image that the node brought and a container of others uses. */
const borrowed = `${suite}/nonewprivs:1.4`;

// The runtime's images lie on a small file system, which the tests fill up.
describe("image garbage collection", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let store: ImageStore;
  let agent: Agent;
  let pods: Pods;
  let isDocker: boolean;
  /** Others use the containerd, too. */
  let isShared: boolean;

  const providerConfig = () => (isShared ? { cri: { sharing: "shared" } } : {});
  const start = async (config: Readonly<Record<string, unknown>> = {}, untilReady = true) => {
    const own = { config, untilReady, env: hastyRounds, args: ["-v=4"] };
    agent = await startGraftlet(cluster, { ...own, providerConfig: providerConfig() });
  };
  const again = async (config: Readonly<Record<string, unknown>> = {}) => {
    await agent.kill("SIGKILL");
    await start(config);
  };
  /** Removes images from that percentage down to the one below it, even those that have just come. */
  const from = (high: number, low = high - 1) => ({
    imageGCHighThresholdPercent: high,
    imageGCLowThresholdPercent: low,
    imageMinimumGCAge: "10ms",
  });
  const stillThere = async (among: readonly string[]) => {
    const names = await store.names();
    return among.filter((image) => names.some((name) => sameImage(name, image)));
  };
  const untilGone = (among: readonly string[]) =>
    cluster.waitFor(`${among.join(", ")} to be gone`, async () => (await stillThere(among)).length === 0, {
      timeoutMs: 60_000,
      explain: async () => [...(await store.names()), agent.log().split("\n").slice(-20).join("\n")].join("\n"),
    });
  const removed = async (): Promise<number> => {
    const said = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
    const samples = parseExposition(said).get("kubelet_image_garbage_collected_total")?.samples ?? [];
    return samples.find(({ labels }) => labels["reason"] === "space")?.value ?? 0;
  };
  /** Runs a pod of that image, and removes it. @param roundMs for which it is there, so that a round sees it. */
  const once = async (name: string, image: string, roundMs = 0) => {
    await pods.create(name, {
      containers: [shell("exec sleep infinity", { image, imagePullPolicy: roundMs > 0 ? "IfNotPresent" : "Always" })],
      terminationGracePeriodSeconds: 1,
    });
    await pods.ready(name);
    await new Promise((resolve) => setTimeout(resolve, roundMs));
    const gone = pods.gone(name);
    await pods.remove(name);
    await gone;
  };

  before(async () => {
    cluster = await startCluster({ name: "image-gc" });
    isDocker = hasDocker(cluster.provider);
    isShared = !isDocker && isRemote(cluster.provider);
    store = await smallImageStore(cluster, 1024);
    await start();
    pods = await openPods(cluster);
    await pods.create("running", { containers: [shell("exec sleep infinity", { image: images.busybox })] });
    await pods.ready("running");
    if (isDocker) await dockerEngine(cluster).docker(["pull", theirs]);
    for (const [index, image] of unused.entries()) await once(`once-${index}`, image);
    await pods.create("ended", { restartPolicy: "Never", containers: [shell("exit 0", { image: ended })] });
    await pods.until("ended", "to have ended", ({ status }) => status?.phase === "Succeeded", 90_000);
    if (isShared) await particulars[cluster.provider].tagImage(cluster, lastUnused, theirs);
    if (!isDocker) return;
    await once("anew", theirs);
    await once("borrowed", borrowed);
    await dockerEngine(cluster).docker(["create", "--name", "lender", borrowed]);
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("removes the least recently used image first", async () => {
    await again(from(80));
    // Two rounds see each of them.
    for (const [index, image] of unused.entries()) await once(`again-${index}`, image, 6_500);
    assert.deepEqual(await stillThere(unused), unused);
    await store.fill(80);
    const gone = async () => {
      const there = await stillThere(unused);
      return unused.filter((image) => !there.includes(image));
    };
    const first = await cluster.waitFor("an image to go", async () => ((await gone()).length > 0 ? gone() : false), {
      everyMs: 50,
    });
    assert.deepEqual(first, unused.slice(0, 1));
    await cluster.waitFor("it to be counted", async () => (await removed()) >= 1);
    await pods.ready("running");
  });

  test("continues after a kill, keeps images in use, and reports how much space could not be freed", async () => {
    const before = await stillThere(unused);
    await agent.kill("SIGKILL");
    await store.fill(90);
    await start(from(20, 10), false);
    if (before.length > 0)
      await cluster.waitFor("another image to go", async () => (await stillThere(unused)).length < before.length, {
        timeoutMs: 60_000,
        everyMs: 20,
      });
    await again(from(20, 10));
    // Runtimes of CRI remove an image with all of its names.
    await untilGone(isShared ? unused.filter((image) => image !== lastUnused) : unused);
    const others = isShared ? [lastUnused, theirs] : isDocker ? [theirs, borrowed] : [];
    const stays = [images.busybox, ended, ...others];
    assert.deepEqual(await stillThere(stays), stays);
    const message =
      /^Insufficient free disk space on the node's image filesystem \(\d+% of \d+\.\d [MG]iB used\)\. Failed to free sufficient space by deleting unused images \(freed \d+ bytes\)\. Investigate disk usage, as it could be used by active images, logs, volumes, or other data\.$/;
    await cluster.waitFor("the event", async () => {
      const said = await cluster.mustKubectl([
        "get",
        "events",
        "--all-namespaces",
        "--field-selector=reason=FreeDiskSpaceFailed,involvedObject.kind=Node",
        "-o=jsonpath={range .items[*]}{.message}{'\\n'}{end}",
      ]);
      return said.split("\n").some((line) => message.test(line));
    });
    // A sandbox needs its image, whether or not the registry answers.
    const names = await store.names();
    assert.ok(
      names.some((name) => /pause/.test(name)),
      names.join("\n"),
    );
    await pods.create("after", { containers: [shell("exec sleep infinity", { image: images.busybox })] });
    await pods.ready("after");
  });

  test("collects an image whose pull was cut off by a kill", async () => {
    await store.fill(0);
    await again();
    const record = join(cluster.layout.kubeletRoot, "graftlet", "images.json");
    await pods.create("cut-off", { restartPolicy: "Never", containers: [shell("exit 0", { image: late })] });
    if (isDocker)
      await cluster.waitFor(
        "the pull to begin",
        () => existsSync(record) && readFileSync(record, "utf8").includes(late),
        {
          everyMs: 5,
        },
      );
    await again();
    await pods.until("cut-off", "to have ended", ({ status }) => status?.phase === "Succeeded", 90_000);
    const gone = pods.gone("cut-off");
    await pods.remove("cut-off");
    await gone;
    assert.deepEqual(await stillThere([late]), [late]);
    await again(from(2));
    await untilGone([late]);
  });

  test("keeps the configured number of dead containers, and removes the oldest with their logs", async () => {
    await agent.kill("SIGKILL");
    const args = ["--maximum-dead-containers=2", "--minimum-container-ttl-duration=0s"];
    agent = await startGraftlet(cluster, { env: hastyGarbage, args, providerConfig: providerConfig() });
    const names = ["first", "second", "third", "fourth"];
    for (const name of names) {
      await pods.create(name, { restartPolicy: "Never", containers: [shell(`echo ${name}`)] });
      await pods.until(name, "to have ended", ({ status }) => status?.phase === "Succeeded", 90_000);
    }
    const logs = () =>
      Promise.all(names.map((name) => cluster.kubectl(["logs", name]).then(({ stdout }) => stdout.trim())));
    await cluster.waitFor("the two oldest to go", async () => {
      const [first, second] = await logs();
      return first !== "first" && second !== "second";
    });
    // Further rounds take no more.
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    assert.deepEqual((await logs()).slice(2), ["third", "fourth"]);
    const phases = await Promise.all(names.map((name) => pods.until(name, "to be known", () => true)));
    assert.deepEqual(
      phases.map(({ status }) => status?.phase),
      names.map(() => "Succeeded"),
    );
    await pods.ready("running");
  });
});

/** Docker leaves out its own registry. */
function sameImage(name: string, image: string): boolean {
  return name === image || `docker.io/library/${name}` === image;
}
