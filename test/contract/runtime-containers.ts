import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerFilter, ContainerState, CreateContainerRequest } from "../../src/gen/cri.ts";
import { type RuntimeUnderTest, gone, patience, podsOf } from "./runtime-pods.ts";

const nowhere = "0".repeat(64);

/** Containers: create, start, status, list, stop, remove, execSync. */
export function containerContract(current: () => RuntimeUnderTest): void {
  lifeContract(current);
  nameContract(current);
  listContract(current);
  endContract(current);
  execContract(current);
}

function lifeContract(current: () => RuntimeUnderTest): void {
  test("runs a container until it exits, and reports its exit code, reason and ordered times", async () => {
    const { runtime, logDirectory } = current();
    await using pods = podsOf(current());
    const config = pods.config();
    const sandboxId = await pods.run(config);
    const labels = { "io.kubernetes.container.name": "main", tier: "front" };
    const annotations = { "io.kubernetes.container.restartCount": "2" };
    const id = await pods.create(sandboxId, config, {
      metadata: { name: "main", attempt: 2 },
      command: ["sh", "-c", "sleep 2; exit 3"],
      labels,
      annotations,
      logPath: "main/2.log",
    });
    const created = (await runtime.containerStatus(id, patience())).status;
    assert.equal(created?.state, ContainerState.CONTAINER_CREATED);
    assert.deepEqual(
      { labels: created.labels, annotations: created.annotations, metadata: created.metadata },
      { labels, annotations, metadata: { name: "main", attempt: 2 } },
    );
    assert.equal(created.logPath, `${logDirectory}/default_contract_${config.metadata?.uid}/main/2.log`);
    assert.equal(created.startedAt, 0n);

    await runtime.startContainer(id, patience());
    const running = (await runtime.containerStatus(id, patience())).status;
    assert.equal(running?.state, ContainerState.CONTAINER_RUNNING);
    assert.notEqual(running.imageRef, "");
    assert.equal(running.finishedAt, 0n);

    const exited = await pods.until(id, ContainerState.CONTAINER_EXITED);
    assert.equal(exited.exitCode, 3);
    assert.equal(exited.reason, "Error");
    assert.ok(
      exited.createdAt > 0n && exited.createdAt <= exited.startedAt && exited.startedAt < exited.finishedAt,
      "createdAt ≤ startedAt < finishedAt",
    );
  });

  test("reports Completed for exit code 0", async () => {
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["true"]);
    const { exitCode, reason } = await pods.until(containerId, ContainerState.CONTAINER_EXITED);
    assert.deepEqual({ exitCode, reason }, { exitCode: 0, reason: "Completed" });
  });

  test("refuses to start a running container again", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    await assert.rejects(runtime.startContainer(containerId, patience()));
    assert.equal(
      (await runtime.containerStatus(containerId, patience())).status?.state,
      ContainerState.CONTAINER_RUNNING,
    );
  });
}

function nameContract(current: () => RuntimeUnderTest): void {
  test("rejects a second container of the same name and attempt in a sandbox", async () => {
    await using pods = podsOf(current());
    const config = pods.config();
    const sandboxId = await pods.run(config);
    const create = (attempt: number) =>
      pods.create(sandboxId, config, { metadata: { name: "main", attempt }, command: ["true"] });
    const first = await create(0);
    await assert.rejects(create(0));
    assert.notEqual(await create(1), first);
  });

  test("creates no container without its sandbox or image", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const config = pods.config();
    const sandboxId = await pods.run(config);
    await assert.rejects(pods.create(nowhere, config, { metadata: { name: "main", attempt: 0 } }), {
      code: "not_found",
    });
    const missing = CreateContainerRequest.fromPartial({
      podSandboxId: sandboxId,
      sandboxConfig: config,
      config: { metadata: { name: "main", attempt: 0 }, image: { image: "registry.k8s.io/contract/absent:1" } },
    });
    await assert.rejects(runtime.createContainer(missing, patience()), { code: "not_found" });
    assert.deepEqual(
      await runtime.listContainers(ContainerFilter.fromPartial({ podSandboxId: sandboxId }), patience()),
      [],
    );
  });
}

function listContract(current: () => RuntimeUnderTest): void {
  test("lists containers by ID, sandbox, state and label", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const config = pods.config();
    const sandboxId = await pods.run(config);
    const [a, b] = [
      await pods.create(sandboxId, config, {
        metadata: { name: "a", attempt: 0 },
        command: ["sleep", "3600"],
        labels: { which: "a" },
      }),
      await pods.create(sandboxId, config, {
        metadata: { name: "b", attempt: 0 },
        command: ["sleep", "3600"],
        labels: { which: "b" },
      }),
    ];
    const other = await pods.runOne(["sleep", "3600"]);
    await runtime.startContainer(a, patience());
    const list = async (filter: Parameters<typeof ContainerFilter.fromPartial>[0]) => {
      const found = await runtime.listContainers(ContainerFilter.fromPartial(filter), patience());
      return found
        .map(({ id }) => id)
        .filter((id) => [a, b, other.containerId].includes(id))
        .sort();
    };
    assert.deepEqual(await list({}), [a, b, other.containerId].sort());
    assert.deepEqual(await list({ id: b }), [b]);
    assert.deepEqual(await list({ podSandboxId: sandboxId }), [a, b].sort());
    assert.deepEqual(await list({ podSandboxId: sandboxId, state: { state: ContainerState.CONTAINER_RUNNING } }), [a]);
    assert.deepEqual(await list({ state: { state: ContainerState.CONTAINER_CREATED } }), [b]);
    assert.deepEqual(await list({ labelSelector: { which: "b" } }), [b]);
    const [shown] = await runtime.listContainers(ContainerFilter.fromPartial({ id: b }), patience());
    assert.equal(shown?.podSandboxId, sandboxId);
    assert.deepEqual(shown.metadata, { name: "b", attempt: 0 });
  });
}

function endContract(current: () => RuntimeUnderTest): void {
  test("stops a container within its grace period; stopping again changes nothing", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    await runtime.stopContainer(containerId, 1, patience());
    const { status } = await runtime.containerStatus(containerId, patience());
    assert.equal(status?.state, ContainerState.CONTAINER_EXITED);
    assert.ok([137, 143].includes(status.exitCode), `killed or terminated: ${status.exitCode}`);
    await runtime.stopContainer(containerId, 1, patience());
    assert.deepEqual((await runtime.containerStatus(containerId, patience())).status, status);
  });

  test("removes a running container; removing again changes nothing", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    await runtime.removeContainer(containerId, patience());
    await assert.rejects(runtime.containerStatus(containerId, patience()), { code: "not_found" });
    await gone(runtime.removeContainer(containerId, patience()));
  });

  test("status and start of an unknown container are not_found; stop and remove succeed", async () => {
    const { runtime } = current();
    await assert.rejects(runtime.containerStatus(nowhere, patience()), { code: "not_found" });
    await assert.rejects(runtime.startContainer(nowhere, patience()), { code: "not_found" });
    await gone(runtime.stopContainer(nowhere, 1, patience()));
    await gone(runtime.removeContainer(nowhere, patience()));
  });
}

function execContract(current: () => RuntimeUnderTest): void {
  test("execSync returns exit code and both outputs", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    const { exitCode, stdout, stderr } = await runtime.execSync(
      containerId,
      ["sh", "-c", "echo out; echo err >&2; exit 7"],
      10,
      patience(),
    );
    assert.deepEqual(
      { exitCode, stdout: stdout.toString(), stderr: stderr.toString() },
      { exitCode: 7, stdout: "out\n", stderr: "err\n" },
    );
    assert.equal((await runtime.execSync(containerId, ["true"], 0, patience())).exitCode, 0);
  });

  test("an execSync that exceeds its timeout fails with deadline_exceeded, and the container keeps running", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    await assert.rejects(runtime.execSync(containerId, ["sleep", "30"], 1, patience()), { code: "deadline_exceeded" });
    assert.equal(
      (await runtime.containerStatus(containerId, patience())).status?.state,
      ContainerState.CONTAINER_RUNNING,
    );
  });

  test("execSync ends when its signal aborts", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    const stop = new AbortController();
    const running = runtime.execSync(containerId, ["sleep", "30"], 0, stop.signal);
    setTimeout(() => stop.abort(), 200);
    await assert.rejects(running, { code: "cancelled" });
  });

  test("execSync fails if the container is not running", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["true"]);
    await pods.until(containerId, ContainerState.CONTAINER_EXITED);
    await assert.rejects(runtime.execSync(containerId, ["true"], 1, patience()));
    await assert.rejects(runtime.execSync(nowhere, ["true"], 1, patience()), { code: "not_found" });
  });
}
