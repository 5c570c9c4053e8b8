import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type Cluster, clusterName, openCluster, startCluster } from "../harness/cluster.ts";
import { particulars } from "../harness/particulars.ts";
import { must, start } from "../harness/processes.ts";
import { layoutOf } from "../harness/state.ts";
import { traces } from "../harness/traces.ts";
import { waitFor } from "../harness/wait.ts";

/** Starts a second cluster in a process of its own, kills that process, and sees the cluster go. */
async function killAnOwner(name: string): Promise<void> {
  const layout = layoutOf(clusterName(name));
  const script = `import { startCluster } from ${JSON.stringify(join(import.meta.dirname, "..", "harness", "cluster.ts"))};
    const began = performance.now();
    await startCluster({ name: ${JSON.stringify(name)} });
    console.log("up", Math.round(performance.now() - began), "ms");
    setInterval(() => {}, 1000);`;
  const owner = start([process.execPath, "--input-type=module", "--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  owner.stdout?.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  try {
    await waitFor("the second cluster", () => said.includes("ms"), { timeoutMs: 120_000 });
    assert.ok(
      Number(said.split(" ")[1]) < 90_000,
      `a second start with a warm cache takes under 20 s, on a busy machine under 90 s, this one: ${said}`,
    );
    assert.notDeepEqual(traces(layout), []);
    await assert.rejects(startCluster({ name }), /is up already/);
  } finally {
    owner.kill("SIGKILL");
  }
  await waitFor("nothing to be left of the second cluster", () => traces(layout).length === 0, {
    timeoutMs: 60_000,
    explain: () => traces(layout).join("\n"),
  });
}

/** The private image is refused without credentials and pulled with them. */
async function pullsWithCredentials(cluster: Cluster): Promise<void> {
  const { server, username, password } = cluster.privateCredentials;
  await cluster.mustKubectl([
    "create",
    "secret",
    "docker-registry",
    "puller",
    `--docker-server=${server}`,
    `--docker-username=${username}`,
    `--docker-password=${password}`,
  ]);
  await cluster.mustKubectl(["run", "refused", `--image=${cluster.privateImage}`, "--", "sleep", "3600"]);
  const reason = ["get", "pod", "refused", "--output=jsonpath={.status.containerStatuses[0].state.waiting.reason}"];
  // Before another pod brings the image.
  await waitFor("the pull without credentials to be refused", async () =>
    /ErrImagePull|ImagePullBackOff/.test(await cluster.mustKubectl(reason)),
  );
  await cluster.mustKubectl([
    "run",
    "pulled",
    `--image=${cluster.privateImage}`,
    '--overrides={"spec":{"imagePullSecrets":[{"name":"puller"}]}}',
    "--",
    "sleep",
    "3600",
  ]);
  await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/pulled", "--timeout=60s"], { timeoutMs: 90_000 });
}

async function survivesRestarts(cluster: Cluster): Promise<void> {
  await cluster.killRuntime();
  await cluster.startRuntime();
  await cluster.stopApiServer();
  assert.notEqual((await cluster.kubectl(["get", "nodes", "--request-timeout=2s"])).code, 0);
  await cluster.startApiServer();
  assert.equal(
    await (await openCluster(cluster.name)).mustKubectl([
      "get",
      "pod",
      "hello",
      "--output=jsonpath={.status.containerStatuses[0].restartCount}",
    ]),
    "0",
  );
  await waitFor(
    "exec after the restarts",
    async () => (await cluster.kubectl(["exec", "hello", "--", "true"])).code === 0,
  );
}

test("two clusters run concurrently: one runs pods, the other's owner is killed, and neither leaves anything behind", {
  timeout: 900_000,
}, async () => {
  const links = await must(["ip", "-o", "link", "show"]);
  const first = layoutOf(clusterName("harness-a"));
  {
    await using cluster = await startCluster({ name: "harness-a" });
    await using _agent = await particulars[cluster.provider].startReference(cluster);
    await cluster.mustKubectl([
      "run",
      "hello",
      "--image=registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
      "--restart=Never",
      "--",
      "sh",
      "-c",
      "echo from the pod; exec sleep 3600",
    ]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/hello", "--timeout=60s"], { timeoutMs: 90_000 });
    await killAnOwner("harness-b");
    assert.equal(await cluster.mustKubectl(["logs", "hello"]), "from the pod\n");
    assert.equal(await cluster.mustKubectl(["exec", "hello", "--", "echo", "hi"]), "hi\n");
    assert.equal((await cluster.kubectl(["exec", "hello", "--", "sh", "-c", "exit 7"])).code, 7);
    await pullsWithCredentials(cluster);
    await survivesRestarts(cluster);
  }
  assert.deepEqual(traces(first), []);
  assert.equal(await must(["ip", "-o", "link", "show"]), links);
});
