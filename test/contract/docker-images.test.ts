import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { localPauseImage } from "../../providers/docker/config.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { AuthConfig, ContainerState, ImageSpec, NamespaceMode, PullImageRequest } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { PullProgress, Runtime, RuntimeEvent } from "../../src/seams/runtime.ts";
import { addresses, privateRegistryHost } from "../harness/namespaces.ts";
import { privateUser } from "../harness/registry.ts";
import { waitFor } from "../harness/wait.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";

// What Docker's images, events and stats have besides what every runtime's have.

let shared: DockerRig | undefined;

before(async () => {
  shared = await startDockerRig("docker-images");
});
after(async () => shared?.[Symbol.asyncDispose]());

function rig(): DockerRig {
  assert.ok(shared, "the daemon could not be started");
  return shared;
}

function pull(
  runtime: Runtime,
  image: string,
  more: Partial<{ auth: AuthConfig; tell: (at: PullProgress) => void }> = {},
) {
  const request = PullImageRequest.fromPartial({ image: { image }, auth: more.auth });
  return runtime.pullImage(request, patience(), more.tell);
}

/** A node on the daemon; all are in one network. */
function nodeOf(name: string, given: Readonly<Record<string, string>> = {}): RuntimeUnderTest {
  const network = "graftlet-images";
  const runtime = dockerRuntime({
    config: readDockerConfig({ socket: `unix://${rig().socket}`, network, podCIDR: addresses.pods, ...given }, name),
    nodeName: name,
    containerLogs: { maxSizeBytes: 10 << 20, maxFiles: 5 },
    host: rig().host,
    clock: systemClock(),
    log: silentLog(),
    requestTimeoutMs: 60_000,
  });
  return {
    runtime,
    image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    missingImage: "registry.k8s.io/contract/no-such:1",
    logDirectory: rig().layout.podLogs,
    [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose](),
  };
}

const spec = (image: string) => ImageSpec.fromPartial({ image });

// The first pull: an engine with containerd's image store says nothing of layers that it has.
test("reports bytes and layers of a pull, accepts digests, and removes all names of an image", async () => {
  await using node = nodeOf("names");
  const { runtime } = node;
  const image = "registry.k8s.io/e2e-test-images/nonroot:1.5";
  let last: PullProgress | undefined;
  const reference = await pull(runtime, image, { tell: (progress) => (last = progress) });
  assert.ok(last && last.layers > 1 && last.layersDone === last.layers, JSON.stringify(last));
  assert.ok(last.bytes > 1e6 && last.bytes === last.totalBytes, JSON.stringify(last));
  assert.equal(await pull(runtime, reference), reference);
  for (const name of ["one.test/a:1", "one.test/a:2", "two.test/b:1"]) await rig().docker(["tag", image, name]);
  const found = await runtime.imageStatus(spec(reference), patience());
  assert.deepEqual([found?.uid?.value, found?.repoTags.length], [1234n, 4]);
  const { stdout: holder } = await rig().docker(["create", image]);
  await assert.rejects(runtime.removeImage(spec(found?.id ?? ""), patience()), { code: "conflict" });
  assert.equal((await runtime.imageStatus(spec(image), patience()))?.repoTags.length, 4);
  await rig().docker(["rm", holder.trim()]);
  await runtime.removeImage(spec("one.test/a:1"), patience());
  assert.equal((await runtime.imageStatus(spec(image), patience()))?.repoTags.length, 3, "a name alone");
  await runtime.removeImage(spec(found?.id ?? ""), patience());
  for (const name of ["two.test/b:1", reference, found?.id ?? ""])
    assert.equal(await runtime.imageStatus(spec(name), patience()), undefined, name);
});

test("uses credentials for one pull only; pulls fail without them or with wrong ones", async () => {
  await using node = nodeOf("credentials");
  const image = `${privateRegistryHost}:${addresses.privateRegistryPort}/private/busybox:1.37`;
  const auth = AuthConfig.fromPartial({ username: privateUser, password: rig().privatePassword });
  await assert.rejects(pull(node.runtime, image), /credentials/);
  await assert.rejects(pull(node.runtime, image, { auth: { ...auth, password: "wrong" } }), /unauthorized/i);
  const [name, digest] = (await pull(node.runtime, image, { auth })).split("@");
  assert.equal(name, `${privateRegistryHost}:${addresses.privateRegistryPort}/private/busybox`);
  assert.match(digest ?? "", /^sha256:[0-9a-f]{64}$/);
  await assert.rejects(pull(node.runtime, image), /credentials/);
});

test("builds a sandbox image whose unprivileged process reaps children and ends on SIGTERM", async () => {
  await using node = nodeOf("pause", { sandboxImage: "registry.k8s.io/contract/no-pause:1" });
  const { runtime } = node;
  await using pods = podsOf(node);
  const config = pods.config();
  const shares = {
    ...config,
    linux: { ...config.linux, securityContext: { namespaceOptions: { pid: NamespaceMode.POD } } },
  };
  const sandboxId = await pods.run(shares as typeof config);
  const made = await runtime.imageStatus(spec(localPauseImage), patience());
  assert.deepEqual([made?.uid?.value, made?.pinned], [65535n, true]);
  const containerId = await pods.create(sandboxId, config, {
    metadata: { name: "orphans", attempt: 0 },
    linux: { securityContext: { namespaceOptions: { pid: NamespaceMode.POD } } },
    command: ["sh", "-c", "while :; do (sleep 0.05 & sleep 0.02 &) ; sleep 0.1; done"],
  });
  await runtime.startContainer(containerId, patience());
  const processes = async (): Promise<string[][]> => {
    const { stdout } = await runtime.execSync(containerId, ["ps", "-o", "pid,user,stat,comm"], 10, patience());
    return Buffer.from(stdout)
      .toString()
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/));
  };
  assert.deepEqual((await processes()).find(([pid]) => pid === "1")?.slice(1), ["65535", "S", "pause"]);
  await waitFor("a second's worth of orphans", async () => Number((await processes()).at(-1)?.[0]) > 30);
  await waitFor(
    "no dead process to be left",
    async () => (await processes()).every(([, , state]) => state !== "Z"),
    30_000,
  );
  const asked = performance.now();
  const { code } = await rig().docker(["stop", "--time", "30", sandboxId]);
  assert.equal(code, 0);
  assert.ok(performance.now() - asked < 20_000, "SIGTERM is enough");
  const { stdout } = await rig().docker(["inspect", "--format", "{{.State.ExitCode}}", sandboxId]);
  assert.equal(stdout.trim(), "0");
});

test("reports events missed while not listening, and ignores those of foreign containers", async () => {
  await using node = nodeOf("listener");
  await using other = nodeOf("stranger");
  await using pods = podsOf(node);
  await using theirs = podsOf(other);
  const events = (signal: AbortSignal) => node.runtime.events?.(signal) ?? assert.fail("no events");
  const first = new AbortController();
  for await (const { kind } of events(first.signal)) if (kind === "listening") first.abort();
  const foreign = await theirs.runOne(["true"]);
  const { sandboxId, containerId, config } = await pods.runOne(["true"]);
  await pods.until(containerId, ContainerState.CONTAINER_EXITED);
  const second = new AbortController();
  const told: Extract<RuntimeEvent, { kind: "changed" }>[] = [];
  for await (const event of events(AbortSignal.any([second.signal, patience()]))) {
    if (event.kind === "changed") told.push(event);
    if (event.kind === "changed" && event.exited) second.abort();
  }
  const { at: endedAt = 0, ...ended } = told.at(-1) ?? assert.fail("no events");
  assert.deepEqual(ended, { kind: "changed", sandboxId, containerId, exited: true });
  assert.ok(Math.abs(Date.now() - endedAt) < 60_000, String(endedAt));
  const { at: _, ...ofSandbox } = told.find((event) => event.containerId === undefined) ?? assert.fail("no sandbox");
  assert.deepEqual(ofSandbox, { kind: "changed", sandboxId, podUid: config.metadata?.uid });
  assert.ok(told.every((event) => event.containerId !== foreign.containerId && event.sandboxId !== foreign.sandboxId));
});

test("reports CPU, memory and writable layer of a container, and the network of its pod", async () => {
  await using node = nodeOf("stats");
  await using other = nodeOf("stranger");
  const { runtime } = node;
  await using pods = podsOf(node);
  const { sandboxId, containerId } = await pods.runOne([
    "sh",
    "-c",
    "head -c 3000000 /dev/zero > /written; nc -w 1 $(ip route | awk '/default/ {print $3}') 9; touch /done; sleep 3600",
  ]);
  await waitFor(
    "the container to have written",
    async () => (await runtime.execSync(containerId, ["test", "-e", "/done"], 10, patience())).exitCode === 0,
  );
  const stats = await runtime.containerStats(containerId, patience());
  assert.ok(stats?.cpu?.usageCoreNanoSeconds && stats.memory?.workingSetBytes && stats.memory.usageBytes);
  assert.ok(stats.cpu.usageCoreNanoSeconds.value > 1_000_000n);
  assert.ok(stats.memory.workingSetBytes.value > 0n);
  assert.ok(stats.memory.workingSetBytes.value <= stats.memory.usageBytes.value);
  assert.ok(stats.writableLayer?.usedBytes && stats.writableLayer.usedBytes.value >= 3_000_000n);
  const { linux } = (await runtime.podSandboxStats?.(sandboxId, patience())) ?? assert.fail("no stats of the pod");
  assert.equal(linux?.network?.defaultInterface?.name, "eth0");
  assert.notEqual(linux.network.defaultInterface.txBytes?.value, 0n);
  assert.deepEqual(
    linux.containers.map(({ attributes }) => attributes?.id),
    [containerId],
  );
  await assert.rejects(other.runtime.containerStats(containerId, patience()), { code: "not_found" });
  assert.deepEqual(await other.runtime.listContainerStats(undefined, patience()), []);
});

test("reports neither CPU nor memory for an exited container", async () => {
  await using node = nodeOf("stats");
  await using pods = podsOf(node);
  const { sandboxId, containerId } = await pods.runOne(["true"]);
  await pods.until(containerId, ContainerState.CONTAINER_EXITED);
  const filter = { id: "", podSandboxId: sandboxId, labelSelector: {} };
  const [ended, ...more] = await node.runtime.listContainerStats(filter, patience());
  assert.equal(more.length, 0);
  assert.equal(ended?.attributes?.id, containerId);
  assert.deepEqual([ended.cpu, ended.memory], [undefined, undefined]);
});
