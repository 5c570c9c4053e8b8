import { test } from "node:test";
import { runtimeContract } from "../../contract/runtime.ts";
import { killedContract, onRig } from "../../contract/runtime-killed.ts";
import { sshTargetOn } from "../../contract/ssh-runtime.ts";
import { podCgroupDriver, providerUnderTest, runtimeDaemons } from "../../harness/runtime-daemon.ts";
import { startRuntimeRig } from "../../harness/runtime-rig.ts";

// What every Runtime means by its operations, on a machine of the matrix, over SSH alone: `GRAFTLET_TEST_SYSTEM`, `GRAFTLET_TEST_SSHD` and
// `GRAFTLET_TEST_PROVIDER`.
const provider = providerUnderTest();

async function underTest(name: string) {
  const rig = await startRuntimeRig(name, provider);
  const made = onRig(rig, await sshTargetOn(rig, provider));
  // A kubelet names the cgroup always; runc with systemd takes no other for it.
  return podCgroupDriver({ provider, layout: rig.layout }) === "systemd"
    ? { ...made, cgroupParent: "contract.slice" }
    : made;
}

runtimeContract(`${provider} on ${process.env.GRAFTLET_TEST_SYSTEM || "debian-12"}`, () =>
  underTest("matrix-contract"),
);

test("a runtime killed behind a live link: calls fail at once, and work within seconds once it is back; containers keep running", async () => {
  await using made = await underTest("matrix-contract-kill");
  const { daemons } = made.rig;
  await killedContract(made, {
    kill: () => daemons.kill(runtimeDaemons[provider].role),
    start: () => daemons.startRuntime(),
  });
});
