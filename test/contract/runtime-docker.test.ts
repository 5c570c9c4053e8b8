import assert from "node:assert/strict";
import { test } from "node:test";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { ContainerState, PodSandboxState } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { addresses } from "../harness/namespaces.ts";
import { runtimeContract } from "./runtime.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { killedContract, onRig } from "./runtime-killed.ts";
import { patience, podsOf } from "./runtime-pods.ts";

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

async function underTest(name: string) {
  const rig = await startDockerRig(name);
  return onRig(rig, runtimeOn(rig));
}

runtimeContract("docker, on Debian's Docker Engine", () => underTest("contract-docker"));

test("dockerd with live-restore killed: calls fail at once, and work within two seconds once it is back; containers keep running", async () => {
  await using made = await underTest("contract-docker-kill");
  const { rig } = made;
  await killedContract(made, { kill: () => rig.kill(), start: () => rig.start() });
});

test("dockerd stopped without live-restore: the containers have exited and their sandbox is not ready afterwards", async () => {
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
