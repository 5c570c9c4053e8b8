import { test } from "node:test";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { runtimeContract } from "./runtime.ts";
import { killedContract, onRig } from "./runtime-killed.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";

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

async function underTest(name: string) {
  const rig = await startRuntimeRig(name, "cri");
  return onRig(rig, runtimeOn(rig));
}

runtimeContract("cri, on Debian's containerd", () => underTest("contract-cri"));

test("containerd killed: calls fail at once, the event stream breaks; back again: calls work within two seconds, containers ran on", async () => {
  await using made = await underTest("contract-cri-kill");
  const { daemons } = made.rig;
  await killedContract(made, { kill: () => daemons.kill("containerd"), start: () => daemons.startRuntime() });
});
