import assert from "node:assert/strict";
import { test } from "node:test";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { ContainerState, PodSandboxState } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { addresses } from "../harness/namespaces.ts";
import { waitFor } from "../harness/wait.ts";
import { runtimeContract } from "./runtime.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";

function runtimeOn({ socket, host }: DockerRig): Runtime {
  const nodeName = "contract";
  return dockerRuntime({
    config: readDockerConfig({ socket: `unix://${socket}`, podCIDR: addresses.pods }, nodeName),
    requestTimeoutMs: 120_000,
    nodeName,
    containerLogs: { maxSizeBytes: 10 << 20, maxFiles: 5 },
    host,
    clock: systemClock(),
    log: createLogger(0),
  });
}

async function underTest(name: string): Promise<RuntimeUnderTest & { readonly rig: DockerRig }> {
  const rig = await startDockerRig(name);
  const runtime = runtimeOn(rig);
  return {
    rig,
    runtime,
    image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    missingImage: "registry.k8s.io/contract/no-such:1",
    logDirectory: rig.layout.podLogs,
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await rig[Symbol.asyncDispose]();
    },
  };
}

runtimeContract("docker, on Debian's Docker Engine", () => underTest("contract-docker"));

test("dockerd killed: calls fail at once, the event stream breaks; back again with live-restore: calls work within two seconds, containers ran on", async () => {
  await using made = await underTest("contract-docker-kill");
  const { rig, runtime } = made;
  await using pods = podsOf(made);
  const { containerId } = await pods.runOne(["sleep", "3600"]);
  const startedAt = await startOf(runtime, containerId);
  const events = runtime.events?.(new AbortController().signal)[Symbol.asyncIterator]();
  assert.deepEqual(await events?.next(), { done: false, value: { is: "listening" } });
  const broken = assert.rejects(async () => events?.next(), { code: "unavailable" });
  await rig.kill();
  await broken;
  const asked = performance.now();
  await assert.rejects(runtime.version(patience()), { code: "unavailable" });
  assert.ok(performance.now() - asked < 500, "fails fast");
  await rig.start();
  const back = performance.now();
  await waitFor("the runtime to answer", () => runtime.containerStatus(containerId, patience()), {
    timeoutMs: 10_000,
    everyMs: 20,
  });
  assert.ok(performance.now() - back < 2500, `answered after ${Math.round(performance.now() - back)} ms`);
  assert.equal(await startOf(runtime, containerId), startedAt);
});

test("dockerd stopped without live-restore: what ran has exited when it is back, and its sandbox is not ready", async () => {
  await using made = await underTest("contract-docker-stop");
  const { rig, runtime } = made;
  await rig.stop();
  await rig.start({ liveRestore: false });
  await using pods = podsOf(made);
  const { containerId, sandboxId } = await pods.runOne(["sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done"]);
  await rig.stop();
  await rig.start({ liveRestore: false });
  const { status } = await runtime.containerStatus(containerId, patience());
  assert.deepEqual([status?.state, status?.exitCode], [ContainerState.CONTAINER_EXITED, 3]);
  const { status: sandbox } = await runtime.podSandboxStatus(sandboxId, patience());
  assert.equal(sandbox?.state, PodSandboxState.SANDBOX_NOTREADY);
});

async function startOf(runtime: Runtime, containerId: string): Promise<bigint | undefined> {
  const { status } = await runtime.containerStatus(containerId, patience());
  assert.equal(status?.state, ContainerState.CONTAINER_RUNNING);
  return status.startedAt;
}
