import { test } from "node:test";
import { runtimeContract } from "./runtime.ts";
import { startDockerRig } from "./runtime-docker.ts";
import { killedContract, onRig } from "./runtime-killed.ts";
import { sshTargetOn } from "./ssh-runtime.ts";

async function underTest(name: string) {
  const rig = await startDockerRig(name, "ssh-docker");
  return onRig(rig, await sshTargetOn(rig, "ssh-docker"));
}

runtimeContract("ssh, on Debian's Docker Engine", () => underTest("contract-docker-ssh"));

test("dockerd with live-restore killed behind a live link: calls fail at once, and work within two seconds once it is back; containers keep running", async () => {
  await using made = await underTest("contract-docker-ssh-kill");
  const { rig } = made;
  await killedContract(made, { kill: () => rig.kill(), start: () => rig.start() });
});
