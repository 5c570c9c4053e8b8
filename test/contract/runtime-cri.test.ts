import assert from "node:assert/strict";
import { test } from "node:test";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { ContainerState } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { waitFor } from "../harness/wait.ts";
import { runtimeContract } from "./runtime.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";
import { type RuntimeRig, startRuntimeRig } from "./runtime-rig.ts";

function runtimeOn(rig: RuntimeRig): Runtime {
  const { containerdSocket } = rig.layout;
  return criRuntime({
    runtimeSocket: containerdSocket,
    imageSocket: containerdSocket,
    requestTimeoutMs: 120_000,
    host: rig.host,
    clock: systemClock(),
    log: createLogger(0),
  });
}

async function underTest(name: string): Promise<RuntimeUnderTest & { readonly rig: RuntimeRig }> {
  const rig = await startRuntimeRig(name, "cri");
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

runtimeContract("cri, on Debian's containerd", () => underTest("contract-cri"));

test("containerd killed: calls fail at once, the event stream breaks; back again: calls work within two seconds, containers ran on", async () => {
  await using made = await underTest("contract-cri-kill");
  const { rig, runtime } = made;
  await using pods = podsOf(made);
  const { containerId } = await pods.runOne(["sleep", "3600"]);
  const events = runtime.events?.(new AbortController().signal)[Symbol.asyncIterator]();
  assert.deepEqual(await events?.next(), { done: false, value: { is: "listening" } });
  const broken = assert.rejects(async () => events?.next(), { code: "unavailable" });
  await rig.daemons.kill("containerd");
  await broken;
  const asked = performance.now();
  await assert.rejects(runtime.version(patience()), { code: "unavailable" });
  assert.ok(performance.now() - asked < 500, "fails fast");
  await rig.daemons.startRuntime();
  const back = performance.now();
  await waitFor("the runtime to answer", () => runtime.containerStatus(containerId, patience()), {
    timeoutMs: 10_000,
    everyMs: 20,
  });
  assert.ok(performance.now() - back < 2500, `answered after ${Math.round(performance.now() - back)} ms`);
  assert.equal(
    (await runtime.containerStatus(containerId, patience())).status?.state,
    ContainerState.CONTAINER_RUNNING,
  );
});
