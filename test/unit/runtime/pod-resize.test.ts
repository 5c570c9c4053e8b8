import assert from "node:assert/strict";
import { test } from "node:test";
import type { ActuatedResources } from "../../../src/runtime/ports.ts";
import type { Resources } from "../../../src/objects.ts";
import { allInForce } from "../../fakes/resizes.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { exited, rig, running } from "./pod-rig.ts";

const has = (cpu: string): Resources => ({ requests: { cpu }, limits: { cpu } });
const podOf = (cpu: string, restartPolicy = "NotRequired"): TestPod =>
  aPod({
    containers: [
      aContainer("a", { resources: has(cpu), resizePolicy: [{ resourceName: "cpu", restartPolicy }] }),
      aContainer("b"),
    ],
  });

/** Container a has 100m until changed; each new run starts with the resources it was created with. */
function resizable() {
  const enforced = new Map<string, Resources>();
  const actuatedResources: ActuatedResources = {
    ...allInForce,
    containerResources: (pod, status) =>
      enforced.get(status.id) ??
      (status.labels["io.kubernetes.container.name"] === "a" && status.metadata?.attempt === 0
        ? has("100m")
        : allInForce.containerResources(pod, status)),
    setContainerResources: async (_uid, id, resources) => void enforced.set(id, resources),
  };
  return rig({ actuatedResources });
}

const updates = ({ runtime }: ReturnType<typeof resizable>) =>
  runtime.calls.filter(({ verb }) => verb === "updateContainerResources").length;

test("resizes a container in place; the next pass has nothing to do", async () => {
  const made = resizable();
  const { pass, states } = made;
  await pass(podOf("100m"));
  assert.deepEqual(await pass(podOf("100m")), { untouched: true });
  assert.deepEqual(await pass(podOf("200m")), {});
  assert.deepEqual([updates(made), await states()], [1, [running("a"), running("b")]]);
  assert.deepEqual(await pass(podOf("200m")), { untouched: true });
});

test("restarts only the container whose policy requires it, with an event that names the reason", async () => {
  const made = resizable();
  const { pass, states, events } = made;
  await pass(podOf("100m", "RestartContainer"));
  assert.deepEqual(await pass(podOf("200m", "RestartContainer")), {});
  assert.deepEqual(
    [updates(made), (await states()).filter((state) => state !== exited("a"))],
    [0, [running("a", 1), running("b")]],
  );
  assert.ok(events.lines.includes("Normal Killing Container a resize requires restart"));
  assert.deepEqual(await pass(podOf("200m", "RestartContainer")), { untouched: true });
});

test("a failed resize is reported, does not block starts, and is retried", async () => {
  const made = resizable();
  const { pass, states, runtime } = made;
  await pass(podOf("100m"));
  runtime.failNext("updateContainerResources", new Error("no such controller"));
  const more = { ...podOf("200m"), spec: { ...podOf("200m").spec } };
  more.spec.containers = [...more.spec.containers, aContainer("late")];
  const outcome = await pass(more);
  assert.deepEqual([outcome.resizeError, outcome.error?.message], ["no such controller", "no such controller"]);
  assert.deepEqual(await states(), [running("a"), running("b"), running("late")]);
  assert.deepEqual([await pass(more), updates(made)], [{}, 2]);
});
