import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import type { Pod } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { c, rig } from "./passes-rig.ts";

/** A container whose start containerd gave up because its caller went away. */
const cutOff = aStatus(c, ContainerState.CONTAINER_EXITED, {
  exitCode: 128,
  reason: "StartError",
  message: "failed to create containerd task: context canceled",
});
const shownState = { statusOf: (_pod: Pod, { containers }: RuntimePod) => ({ phase: `${containers[0]?.state}` }) };

test("treats a container whose start was cut off and never reported as not started", async () => {
  const { calls, world, passes } = rig(shownState);
  world.seen = observe([aSandbox()], [cutOff]);
  await passes.sync(aPod({ restartPolicy: "Never" }), never);
  const created = `status ${ContainerState.CONTAINER_CREATED}`;
  assert.deepEqual([calls[0], calls.at(-1)], [created, created]);
});

test("treats a container as exited if its start was refused in this pass, or a status reports its end", async () => {
  const exited = `status ${ContainerState.CONTAINER_EXITED}`;
  const refused = rig(shownState);
  refused.world.seen = observe([aSandbox()], [cutOff]);
  refused.world.outcome = { refused: [cutOff.id] };
  await refused.passes.sync(aPod(), never);
  assert.equal(refused.calls.at(-1), exited);
  const terminated = { exitCode: 128, containerID: `containerd://${cutOff.id}` };
  const containerStatuses = [
    { name: "c", image: "", imageID: "", ready: false, restartCount: 0, state: { terminated } },
  ];
  const reported = rig(shownState);
  reported.world.seen = refused.world.seen;
  await reported.passes.sync({ ...aPod(), status: { containerStatuses } }, never);
  assert.deepEqual([reported.calls[0], reported.calls.at(-1)], [exited, exited]);
});
