import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, PodSandboxFilter, PodSandboxState } from "../../src/gen/cri.ts";
import { type RuntimeUnderTest, gone, patience, podsOf } from "./runtime-pods.ts";

const nowhere = "0".repeat(64);

/** Sandboxes: run, status, list, stop, remove. */
export function sandboxContract(current: () => RuntimeUnderTest): void {
  test("a running sandbox is ready, has an address, and keeps its names, labels and annotations", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const before = BigInt(Date.now() - 1000) * 1_000_000n;
    const config = pods.config({ labels: { app: "web" }, annotations: { "example.com/note": "a b\nc" }, attempt: 3 });
    const id = await pods.run(config);
    const { status } = await runtime.podSandboxStatus(id, patience());
    assert.ok(status);
    assert.equal(status.id, id);
    assert.equal(status.state, PodSandboxState.SANDBOX_READY);
    assert.deepEqual(status.metadata, config.metadata);
    assert.deepEqual(status.labels, config.labels);
    assert.deepEqual(status.annotations, config.annotations);
    assert.match(status.network?.ip ?? "", /^[0-9a-f.:]+$/);
    assert.ok(status.createdAt > before, "createdAt is in nanoseconds since the epoch");
  });

  test("lists sandboxes by ID, state and label", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const [red, blue] = [
      await pods.run(pods.config({ labels: { colour: "red" } })),
      await pods.run(pods.config({ labels: { colour: "blue" } })),
    ];
    await runtime.stopPodSandbox(blue, patience());
    const list = async (filter: Parameters<typeof PodSandboxFilter.fromPartial>[0]) => {
      const found = await runtime.listPodSandbox(PodSandboxFilter.fromPartial(filter), patience());
      return found
        .map(({ id }) => id)
        .filter((id) => id === red || id === blue)
        .sort();
    };
    assert.deepEqual(await list({}), [red, blue].sort());
    assert.deepEqual(
      (await runtime.listPodSandbox(undefined, patience()))
        .map(({ id }) => id)
        .filter((id) => id === red || id === blue)
        .sort(),
      [red, blue].sort(),
    );
    assert.deepEqual(await list({ id: red }), [red]);
    assert.deepEqual(await list({ labelSelector: { colour: "blue" } }), [blue]);
    assert.deepEqual(await list({ labelSelector: { colour: "blue", absent: "yes" } }), []);
    assert.deepEqual(await list({ state: { state: PodSandboxState.SANDBOX_READY } }), [red]);
    assert.deepEqual(await list({ state: { state: PodSandboxState.SANDBOX_NOTREADY } }), [blue]);
  });

  test("rejects a second sandbox of the same name until the first is removed", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const config = pods.config();
    const first = await pods.run(config);
    await assert.rejects(pods.run(config));
    await runtime.stopPodSandbox(first, patience());
    await runtime.removePodSandbox(first, patience());
    assert.notEqual(await pods.run(config), first);
  });

  endContract(current);
}

function endContract(current: () => RuntimeUnderTest): void {
  test("stopping a sandbox ends its containers; stopping again changes nothing", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { sandboxId, containerId } = await pods.runOne(["sleep", "3600"]);
    await runtime.stopPodSandbox(sandboxId, patience());
    await runtime.stopPodSandbox(sandboxId, patience());
    assert.equal(
      (await runtime.podSandboxStatus(sandboxId, patience())).status?.state,
      PodSandboxState.SANDBOX_NOTREADY,
    );
    const { exitCode, finishedAt } = await pods.until(containerId, ContainerState.CONTAINER_EXITED);
    assert.notEqual(exitCode, 0);
    assert.ok(finishedAt > 0n);
  });

  test("removing a sandbox removes its containers; removing again changes nothing", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { sandboxId, containerId } = await pods.runOne(["true"]);
    await pods.until(containerId, ContainerState.CONTAINER_EXITED);
    await runtime.stopPodSandbox(sandboxId, patience());
    await runtime.removePodSandbox(sandboxId, patience());
    await runtime.removePodSandbox(sandboxId, patience());
    await assert.rejects(runtime.podSandboxStatus(sandboxId, patience()), { code: "not_found" });
    await assert.rejects(runtime.containerStatus(containerId, patience()), { code: "not_found" });
  });

  test("status of an unknown sandbox is not_found; stop and remove succeed", async () => {
    const { runtime } = current();
    await assert.rejects(runtime.podSandboxStatus(nowhere, patience()), { code: "not_found" });
    await gone(runtime.stopPodSandbox(nowhere, patience()));
    await gone(runtime.removePodSandbox(nowhere, patience()));
  });
}
