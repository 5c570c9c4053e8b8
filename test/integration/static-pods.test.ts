import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import type { CoreEvent, Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet, startKubelet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { forgetPeak, memoryOf } from "../harness/holdings.ts";
import { askKubelet } from "../harness/kubelet-api.ts";
import { containerId, images, openPods, type Pods, statusOf } from "../harness/pods.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";

const script = 'trap "echo ending; sleep 3; exit 0" TERM; echo started; while true; do sleep 0.1; done';

/** A pod as a file has it: a shell that takes three seconds to end. */
function manifest(
  name: string,
  more: { readonly metadata?: object; readonly spec?: object; readonly env?: string } = {},
) {
  const env = [{ name: "VERSION", value: more.env ?? "one" }];
  const container = { name: "main", image: images.busybox, command: ["sh", "-c", script], env };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, ...more.metadata },
    spec: { terminationGracePeriodSeconds: 20, containers: [container], ...more.spec },
  };
}

/** How the event of several begins. */
const combined = "(combined from similar events): ";

describe("static pods", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent;

  const fileOf = (name: string) => join(cluster.layout.staticPods, name);
  const write = (name: string, content: object | string) =>
    writeFileSync(fileOf(name), typeof content === "string" ? content : JSON.stringify(content));
  const nameOf = (name: string) => `${name}-${cluster.nodeName}`;
  const path = (name: string) => `/api/v1/namespaces/default/pods/${nameOf(name)}`;
  const mirrorOf = (name: string) => pods.api.get<Pod>(path(name));
  const versionInside = (name: string) =>
    cluster.mustKubectl(["exec", nameOf(name), "--", "sh", "-c", "echo $VERSION"]);
  const nodeEvents = async () =>
    (
      await pods.api.get<{ items: readonly CoreEvent[] }>(
        `/api/v1/namespaces/default/events?fieldSelector=reason%3DInvalidManifest`,
      )
    ).items;
  /** The sandboxes of that pod, as the log of its mirror pods tells: each mirror pod has a UID of its own. */
  const mirrorsSeen = (name: string) => new Set(pods.history(nameOf(name)).map(({ metadata }) => metadata.uid)).size;

  before(async () => {
    cluster = await startCluster({ name: "static-pods" });
    agent = await startGraftlet(cluster);
    pods = await openPods(cluster);
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("static pods run from a file, with a mirror pod owned by the node", async () => {
    write("web.json", manifest("web"));
    const pod = await pods.ready(nameOf("web"));
    const node = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
    const { annotations = {}, ownerReferences } = pod.metadata;
    assert.deepEqual(
      [annotations["kubernetes.io/config.source"], annotations["kubernetes.io/config.mirror"]],
      ["file", annotations["kubernetes.io/config.hash"]],
    );
    assert.deepEqual(ownerReferences, [
      { apiVersion: "v1", kind: "Node", name: cluster.nodeName, uid: node.metadata.uid, controller: true },
    ]);
    assert.equal(pod.status?.phase, "Running");
    assert.equal(pod.status?.observedGeneration, undefined);
  });

  test("static pods support logs and exec by the mirror pod's name", async () => {
    await pods.logged(nameOf("web"), /^started/);
    assert.equal(await versionInside("web"), "one\n");
  });

  test("a manifest that takes seconds to read blocks nothing, and takes bounded memory", async () => {
    const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
    forgetPeak(agent.pid);
    const before = memoryOf(agent.pid).peak;
    const began = performance.now();
    let longest = 0;
    write("slow.yaml", `a:\n${"- x\n".repeat(260_000)}`);
    const named = () => agent.log().includes("slow.yaml");
    while (!named() && performance.now() - began < 120_000) {
      const asked = performance.now();
      assert.equal((await askKubelet(cluster, "/healthz", { certificate })).status, 200);
      longest = Math.max(longest, performance.now() - asked);
    }
    const took = performance.now() - began;
    rmSync(fileOf("slow.yaml"));
    assert.ok(named(), "it is named");
    assert.ok(longest < took / 3, `an answer took ${longest.toFixed(0)} of ${took.toFixed(0)} ms`);
    const grown = memoryOf(agent.pid).peak - before;
    assert.ok(grown < 400, `${grown.toFixed(0)} MiB`);
    await cluster.waitFor("the node to have nothing against it", () =>
      /static pod manifest is valid again/.test(agent.log()),
    );
  });

  test("a deleted mirror pod is re-created, and the container keeps running", async () => {
    for (const force of [[], ["--grace-period=0", "--force"]]) {
      const standing = await mirrorOf("web");
      await cluster.mustKubectl(["delete", "pod", nameOf("web"), "--wait=false", ...force]);
      const next = await pods.until(
        nameOf("web"),
        "another mirror pod to be ready",
        (pod) => pod.metadata.uid !== standing.metadata.uid && statusOf(pod)?.ready === true,
      );
      assert.equal(containerId(next), containerId(standing));
      assert.equal(next.status?.startTime, standing.status?.startTime);
    }
  });

  test("the API server rejects changes of a mirror pod, and the node restores its status", async () => {
    const status = { status: { phase: "Failed", message: "meddled" } };
    const { metadata } = await pods.api.patch<Pod>(`${path("web")}/status`, status);
    const isLater = (pod: Pod) => Number(pod.metadata.resourceVersion) > Number(metadata.resourceVersion);
    await pods.until(
      nameOf("web"),
      "its true status",
      (pod) => isLater(pod) && pod.status?.phase === "Running" && !pod.status.message,
    );
  });

  test("a changed file makes a different pod: the old one terminates within its grace period, then the new one starts", async () => {
    const standing = await mirrorOf("web");
    const changedAt = Date.now();
    write("web.json", manifest("web", { env: "two" }));
    write("web.json", manifest("web", { env: "three" }));
    const next = await pods.until(
      nameOf("web"),
      "the new version to be ready",
      (pod) => pod.metadata.uid !== standing.metadata.uid && statusOf(pod)?.ready === true,
    );
    assert.ok(Date.now() - changedAt >= 3_000, "the old one had its three seconds");
    assert.equal(await versionInside("web"), "three\n");
    assert.notEqual(
      next.metadata.annotations?.["kubernetes.io/config.hash"],
      standing.metadata.annotations?.["kubernetes.io/config.hash"],
    );
  });

  test("starts a pod again if its file is removed and restored unchanged while the pod terminates", async () => {
    const standing = await mirrorOf("web");
    rmSync(fileOf("web.json"));
    // A node serves no logs of a pod that no file wants any more, as a kubelet: its folder of logs is still there.
    const [log] = globSync(join(cluster.layout.podLogs, `default_${nameOf("web")}_*`, "main", "0.log"));
    assert.ok(log);
    await cluster.waitFor("the pod to be ending", () => readFileSync(log, "utf8").includes("ending"));
    write("web.json", manifest("web", { env: "three" }));
    await pods.until(
      nameOf("web"),
      "the pod to run again",
      (pod) => statusOf(pod)?.ready === true && containerId(pod) !== containerId(standing),
    );
    rmSync(fileOf("web.json"));
    await pods.gone(nameOf("web"));
  });

  test("restarts a pod and counts the restart if its file is removed and restored at once", async () => {
    write("swift.json", manifest("swift"));
    const standing = await pods.ready(nameOf("swift"));
    rmSync(fileOf("swift.json"));
    write("swift.json", manifest("swift"));
    const next = await pods.until(
      nameOf("swift"),
      "the pod to run again",
      (pod) => statusOf(pod)?.ready === true && containerId(pod) !== containerId(standing),
    );
    assert.deepEqual([next.status?.phase, statusOf(next)?.restartCount], ["Running", 1]);
    rmSync(fileOf("swift.json"));
    await pods.gone(nameOf("swift"));
  });

  test("reports invalid files in the log and in events, and runs the pods of the valid files", async () => {
    write("good.yaml", manifest("good"));
    const bad: Readonly<Record<string, object | string>> = {
      "text.yaml": "a: [b",
      "two.yaml": `${JSON.stringify(manifest("x"))}\n---\n${JSON.stringify(manifest("y"))}`,
      "list.yaml": [manifest("x")],
      "kind.yaml": { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "x" } },
      "name.yaml": manifest("good"),
      "long.yaml": manifest("x", { metadata: { annotations: { text: "x".repeat(2 << 20) } } }),
      "half.yaml": JSON.stringify(manifest("x")).slice(0, 100),
      "namespace.yaml": manifest("x", { metadata: { namespace: "a/b" } }),
      "uid.yaml": manifest("x", { metadata: { uid: "../x" } }),
      "secret.yaml": manifest("x", { spec: { volumes: [{ name: "s", secret: { secretName: "s" } }] } }),
    };
    for (const [name, content] of Object.entries(bad)) write(name, content);
    symlinkSync("/etc/hosts", fileOf("link.yaml"));
    execFileSync("mkfifo", [fileOf("fifo.yaml")]);
    await pods.ready(nameOf("good"));
    const names = [...Object.keys(bad), "link.yaml", "fifo.yaml"];
    try {
      // Of one object nine events of one kind are told apart; the others are combined, and show the last of them.
      const told = await cluster.waitFor("the events", async () => {
        const messages = (await nodeEvents()).map(({ message }) => message ?? "");
        return messages.some((message) => message.startsWith(combined)) && messages;
      });
      // The events of an earlier test are among them.
      const known = [...names, "slow.yaml"];
      const named = (message: string) => known.find((name) => message.includes(`${fileOf(name)} is ignored: `));
      assert.deepEqual(
        told.filter((message) => !named(message)),
        [],
      );
      assert.ok(new Set(told.map(named)).size >= 9, told.join("\n"));
      for (const name of names) await cluster.waitFor(`word of ${name}`, () => agent.log().includes(fileOf(name)));
    } finally {
      for (const name of names) rmSync(fileOf(name));
    }
    assert.equal(statusOf(await mirrorOf("good"))?.restartCount, 0);
  });

  test("static pods keep running across a restart, with the same mirror pods", async () => {
    const standing = await mirrorOf("good");
    const seen = mirrorsSeen("good");
    await agent.kill("SIGKILL");
    agent = await startGraftlet(cluster);
    await pods.until(nameOf("good"), "its status", (pod) => statusOf(pod)?.ready === true);
    const now = await mirrorOf("good");
    assert.deepEqual([now.metadata.uid, containerId(now)], [standing.metadata.uid, containerId(standing)]);
    assert.equal(mirrorsSeen("good"), seen);
  });

  test("containers that were ready and started stay so across a restart", async () => {
    const probe = { exec: { command: ["true"] }, periodSeconds: 30 };
    const container = { name: "main", image: images.busybox, command: ["sleep", "3600"] };
    const spec = {
      terminationGracePeriodSeconds: 1,
      containers: [{ ...container, startupProbe: probe, readinessProbe: probe }],
    };
    try {
      write("probed.json", manifest("probed", { spec }));
      const startedAt = statusOf(await pods.ready(nameOf("probed")))?.state?.running?.startedAt ?? assert.fail();
      // A container that is younger when the agent starts counts as new.
      await setTimeout(Date.parse(startedAt) + 12_000 - Date.now());
      const before = pods.history(nameOf("probed")).length;
      await agent.kill("SIGKILL");
      agent = await startGraftlet(cluster);
      // Its mirror pod comes after those that were there.
      write("later.json", manifest("later"));
      await pods.ready(nameOf("later"));
      for (const version of [await mirrorOf("probed"), ...pods.history(nameOf("probed")).slice(before)])
        assert.deepEqual([statusOf(version)?.started, statusOf(version)?.ready], [true, true]);
    } finally {
      for (const name of ["probed", "later"]) rmSync(fileOf(`${name}.json`), { force: true });
    }
    await pods.gone(nameOf("probed"));
  });

  test("a file removed while graftlet is down removes its pod and mirror pod at the next start", async () => {
    await agent.kill("SIGKILL");
    rmSync(fileOf("good.yaml"));
    agent = await startGraftlet(cluster);
    await pods.gone(nameOf("good"));
  });

  test("runs pods from a URL, which is requested with the configured header", async () => {
    let body = JSON.stringify({ apiVersion: "v1", kind: "PodList", items: [manifest("far"), manifest("near")] });
    const server = createServer((request, response) =>
      request.headers["x-key"] === "right" ? response.end(body) : response.writeHead(401).end(),
    );
    await new Promise<void>((resolve) => server.listen(join(cluster.layout.dir, "manifests.sock"), resolve));
    // Graftlet's machine has a network of its own, and the file system in common.
    const socket = join(cluster.layout.dir, "manifests.sock");
    const relay = cluster.spawnAtAgent([process.execPath, "-e", relayProgram, socket]);
    try {
      await agent.stop();
      const url = { staticPodURL: "http://127.0.0.1:18099/", staticPodURLHeader: { "X-Key": ["right"] } };
      agent = await startGraftlet(cluster, { config: { ...url, httpCheckFrequency: "1s" } });
      await Promise.all(["far", "near"].map((name) => pods.ready(nameOf(name))));
      body = JSON.stringify(manifest("near"));
      await pods.gone(nameOf("far"));
      assert.equal((await mirrorOf("near")).metadata.annotations?.["kubernetes.io/config.source"], "http");
      body = "";
      await pods.gone(nameOf("near"));
    } finally {
      relay.kill();
      server.close();
    }
  });

  test("adopts a kubelet's running static pods, and hands them back", {
    skip: providerUnderTest() !== "cri" && "the kubelet runs pods through CRI alone",
  }, async () => {
    await agent.stop();
    write("taken.json", manifest("taken", { metadata: { labels: { app: "x" } } }));
    const kubelet = await startKubelet(cluster);
    const before = await pods.ready(nameOf("taken"));
    await kubelet.stop();
    agent = await startGraftlet(cluster);
    await pods.until(nameOf("taken"), "its status", (pod) => statusOf(pod)?.ready === true);
    const now = await mirrorOf("taken");
    assert.deepEqual([now.metadata.uid, containerId(now)], [before.metadata.uid, containerId(before)]);
    assert.equal(statusOf(now)?.restartCount, 0);
    rmSync(fileOf("taken.json"));
    await pods.gone(nameOf("taken"));
  });

  test("without a kubeconfig, graftlet runs its static pods standalone", async () => {
    await agent.stop();
    write("alone.json", manifest("alone"));
    const config = {
      authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
      authorization: { mode: "AlwaysAllow" },
    };
    agent = await startGraftlet(cluster, { kubeconfig: "", untilReady: false, config });
    const shown = async () => {
      const { body } = await askKubelet(cluster, "/pods");
      const { items } = JSON.parse(body) as { items: readonly Pod[] };
      return items.map(({ metadata, status }) => `${metadata.name} is ${status?.phase}`).join();
    };
    await cluster.waitFor("the pod to run", async () => (await shown()) === `${nameOf("alone")} is Running`);
    assert.ok(agent.isRunning());
    rmSync(fileOf("alone.json"));
    await agent.stop();
    agent = await startGraftlet(cluster);
  });
});

/** Carries connections to a port of the cluster's machine to a socket in the file system. */
const relayProgram = `
  const net = require("node:net");
  net.createServer((near) => {
    const far = net.connect(process.argv[1]);
    near.pipe(far).pipe(near);
    for (const end of [near, far]) end.on("error", () => (near.destroy(), far.destroy()));
  }).listen(18099, "127.0.0.1");
`;
