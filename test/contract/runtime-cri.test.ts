import assert from "node:assert/strict";
import { test } from "node:test";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { CgroupDriver } from "../../src/gen/cri.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { runtimeContract } from "./runtime.ts";
import { killedContract, onRig } from "./runtime-killed.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";
import { writeContainerdConfig } from "../harness/containerd.ts";
import { secondRuntimeHandler } from "../harness/containerd-config.ts";
import { type ContainerdVersion, containerdVersions } from "../harness/containerd-version.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";

/** @param told where it says what it makes of the runtime. */
function runtimeOn(rig: RuntimeRig, told: string[]): Runtime {
  const { containerdSocket } = rig.layout;
  return criRuntime({
    runtimeSocket: containerdSocket,
    imageSocket: containerdSocket,
    requestTimeoutMs: 120_000,
    host: rig.host,
    clock: systemClock(),
    log: createLogger(0, { write: (line) => void told.push(line) }),
  });
}

async function underTest(name: string, containerd: ContainerdVersion) {
  const rig = await startRuntimeRig(`${name}-${containerd.replace(".", "")}`, "cri", { containerd });
  const told: string[] = [];
  return { ...onRig(rig, runtimeOn(rig, told)), told };
}

for (const containerd of containerdVersions) {
  runtimeContract(`cri, on containerd ${containerd}`, () => underTest("contract-cri", containerd));

  test(`containerd ${containerd} killed: calls fail at once, and work within two seconds once it is back; containers keep running`, async () => {
    await using made = await underTest("contract-cri-kill", containerd);
    const { daemons } = made.rig;
    await killedContract(made, { kill: () => daemons.kill("containerd"), start: () => daemons.startRuntime() });
  });
}

/** The runtime's first event about a container of its own. */
async function eventOf(made: RuntimeUnderTest) {
  await using pods = podsOf(made);
  let pod: Awaited<ReturnType<typeof pods.runOne>> | undefined;
  for await (const event of made.runtime.events?.(patience()) ?? []) {
    if (event.kind === "listening") pod = await pods.runOne(["sleep", "3600"]);
    else if (pod && event.containerId === pod.containerId) return { event, uid: pod.config.metadata?.uid };
  }
  return assert.fail("there was no event");
}

test("containerd 2.4 reports events, its cgroup driver and handler features over CRI", async () => {
  await using made = await underTest("contract-cri-tells", "2.4");
  const { event, uid } = await eventOf(made);
  assert.equal(event.podUid, uid);
  assert.ok(!made.told.some((line) => line.includes("event source not supported")), made.told.join());
  assert.equal((await made.runtime.runtimeConfig(patience())).linux?.cgroupDriver, CgroupDriver.CGROUPFS);
  const { runtimeHandlers, features } = await made.runtime.status(patience());
  assert.deepEqual(runtimeHandlers.map(({ name }) => name).toSorted(), ["", "runc", secondRuntimeHandler]);
  assert.equal(features?.supplementalGroupsPolicy, true);
});

test("containerd 1.6 reports events over its own API, and its cgroup driver in its configuration", async () => {
  await using made = await underTest("contract-cri-tells", "1.6");
  assert.equal((await eventOf(made)).event.podUid, undefined);
  assert.ok(
    made.told.some((line) => line.includes("CRI GetContainerEvents")),
    made.told.join(),
  );
  const driver = async () => (await made.runtime.runtimeConfig(patience())).linux?.cgroupDriver;
  assert.equal(await driver(), CgroupDriver.CGROUPFS);
  const { daemons, layout } = made.rig;
  await daemons.kill("containerd");
  writeContainerdConfig(layout, "systemd");
  await daemons.startRuntime();
  assert.equal(await driver(), CgroupDriver.SYSTEMD);
  assert.deepEqual((await made.runtime.status(patience())).runtimeHandlers, []);
});
