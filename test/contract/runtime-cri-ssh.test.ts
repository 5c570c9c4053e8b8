import { test } from "node:test";
import { runtimeContract } from "./runtime.ts";
import { killedContract, onRig } from "./runtime-killed.ts";
import { startRuntimeRig } from "../harness/runtime-rig.ts";
import { sshTargetOn } from "./ssh-runtime.ts";

async function underTest(name: string) {
  const rig = await startRuntimeRig(name, "ssh");
  return onRig(rig, await sshTargetOn(rig, "ssh"));
}

runtimeContract("ssh, on Debian's containerd", () => underTest("contract-cri-ssh"));

test("containerd killed behind a live link: calls fail at once, and work within two seconds once it is back; containers keep running", async () => {
  await using made = await underTest("contract-cri-ssh-kill");
  const { daemons } = made.rig;
  await killedContract(made, { kill: () => daemons.kill("containerd"), start: () => daemons.startRuntime() });
});
