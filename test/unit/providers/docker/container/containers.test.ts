import assert from "node:assert/strict";
import { test } from "node:test";
import type { ContainerInspectInfo } from "dockerode";
import { createDockerClient } from "../../../../../providers/docker/client/client.ts";
import { dockerContainers } from "../../../../../providers/docker/container/containers.ts";
import { cacheSandbox } from "../../../../../providers/docker/container-facts.ts";
import { containerType, logPathLabel, sandboxType } from "../../../../../providers/docker/container/names.ts";
import { ContainerFilter, ContainerState, CreateContainerRequest, Signal } from "../../../../../src/gen/cri.ts";
import { type EngineAnswer, type EngineCall, fakeEngine } from "../engine.ts";
import { createdState, inspection, runningState } from "../inspection.ts";

const id = "c".repeat(64);
const signal = () => AbortSignal.timeout(5000);
const logFile = `/var/lib/docker/containers/${id}/${id}-json.log`;
const logLink = "/var/log/pods/default_web_uid-1/main/2.log";

const exitedState = {
  ...createdState,
  Status: "exited",
  StartedAt: "2026-01-01T00:00:02Z",
  FinishedAt: "2026-01-01T00:00:03Z",
};

/** A daemon with one sandbox and one container. */
function engineWith(
  state: typeof createdState,
  changes: (call: EngineCall, nth: number) => EngineAnswer,
  labels: Readonly<Record<string, string>> = {},
) {
  let changed = 0;
  return fakeEngine((call) => {
    if (call.path === "/containers/box/json")
      return { status: 200, body: inspection("box", sandboxType, runningState) };
    if (call.path === `/containers/${id}/json`)
      return { status: 200, body: inspection(id, containerType, state, labels) };
    if (call.method === "GET") return { status: 404, body: { message: `no such ${call.path}` } };
    return changes(call, changed++);
  });
}

/** The sandbox's inspection. */
function sandboxBox(state: typeof createdState): ContainerInspectInfo {
  return inspection("box", sandboxType, state) as unknown as ContainerInspectInfo;
}

function request(config: object = {}) {
  return CreateContainerRequest.fromPartial({
    podSandboxId: "box",
    sandboxConfig: {
      metadata: { name: "web", namespace: "default", uid: "uid-1", attempt: 0 },
      logDirectory: "/var/log/pods/default_web_uid-1",
    },
    config: {
      metadata: { name: "main", attempt: 2 },
      image: { image: "sha256:1", userSpecifiedImage: "busybox" },
      logPath: "main/2.log",
      ...config,
    },
  });
}

const created = (): EngineAnswer => ({ status: 201, body: { Id: id, Warnings: [] } });

test("uses the image's process settings if the pod has none", async () => {
  await using engine = await engineWith(createdState, created);
  const containers = dockerContainers(engine.parts);
  assert.deepEqual(await containers.createContainer(request(), signal()), { containerId: id });
  const plain = engine.calls.at(-1)?.body ?? {};
  for (const field of ["Entrypoint", "Cmd", "WorkingDir", "User", "StopSignal"]) assert.ok(!(field in plain), field);
  const envs = [{ key: "A", value: Buffer.from("b=c") }];
  const asked = request({ command: ["sh"], args: ["-c", "true"], workingDir: "/w", envs, tty: true, stopSignal: 36 });
  await containers.createContainer(asked, signal());
  const { Entrypoint, Cmd, WorkingDir, Env, Tty, StopSignal, Healthcheck } = engine.calls.at(-1)?.body ?? {};
  assert.deepEqual(
    { Entrypoint, Cmd, WorkingDir, Env, Tty, StopSignal, Healthcheck },
    {
      Entrypoint: ["sh"],
      Cmd: ["-c", "true"],
      WorkingDir: "/w",
      Env: ["A=b=c"],
      Tty: true,
      StopSignal: "SIGRTMIN+1",
      Healthcheck: { Test: ["NONE"] },
    },
  );
});

test("reports a container's stop signal, whether Docker got it from the request or the image", async () => {
  const signals = [
    [undefined, Signal.SIGTERM],
    ["SIGRTMIN+1", Signal.SIGRTMINPLUS1],
    ["usr1", Signal.SIGUSR1],
    ["3", Signal.SIGQUIT],
    ["SIGNONE", Signal.RUNTIME_DEFAULT],
  ] as const;
  for (const [StopSignal, expected] of signals) {
    const found = inspection(id, containerType, runningState);
    const body = { ...found, Config: { ...found.Config, StopSignal } };
    await using engine = await fakeEngine(({ path }) =>
      path === `/containers/${id}/json` ? { status: 200, body } : { status: 404, body: { message: "no such image" } },
    );
    const { status } = await dockerContainers(engine.parts).containerStatus(id, signal());
    assert.equal(status?.stopSignal, expected, StopSignal ?? "unset");
  }
});

test("links the log path to Docker's file before the container starts, replacing an older link", async () => {
  await using engine = await engineWith(createdState, created);
  const { host } = engine.parts;
  await host.fs.apply([
    { kind: "mkdir", path: "/var/log/pods/default_web_uid-1/main", parents: true },
    { kind: "symlink", path: logLink, target: "/elsewhere" },
  ]);
  await dockerContainers(engine.parts).createContainer(request(), signal());
  assert.equal(await host.fs.readlink(logLink), logFile);
});

test("in a known sandbox, creates and starts a container with one request each, its log linked", async () => {
  await using engine = await engineWith(createdState, (call) =>
    call.path.endsWith("/start") ? { status: 204 } : created(),
  );
  const { host, facts } = engine.parts;
  cacheSandbox(facts, sandboxBox(runningState));
  const containers = dockerContainers(engine.parts);
  await containers.createContainer(request(), signal());
  await containers.startContainer(id, signal());
  assert.deepEqual(
    engine.calls.map(({ path }) => path).sort(),
    [
      `/containers/${id}/start`,
      "/containers/box/json",
      "/containers/create",
      "/images/docker.io/library/sha256:1/json",
    ].sort(),
  );
  assert.equal(engine.calls.at(-1)?.path, `/containers/${id}/start`);
  assert.equal(await host.fs.readlink(logLink), logFile);
  await containers.startContainer(id, signal());
  assert.equal(engine.calls.at(-2)?.path, `/containers/${id}/json`, "asked whether it has started, from then on");
});

test("removes a container created in an ended sandbox", async () => {
  await using engine = await fakeEngine(({ method, path }) => {
    if (path === "/containers/box/json") return { status: 200, body: sandboxBox(exitedState) };
    return method === "POST" ? created() : { status: method === "DELETE" ? 204 : 404 };
  });
  cacheSandbox(engine.parts.facts, sandboxBox(runningState));
  await assert.rejects(dockerContainers(engine.parts).createContainer(request(), signal()), {
    code: "failed_precondition",
    message: "sandbox box is not running",
  });
  const removed = engine.calls.filter(({ method }) => method === "DELETE").map(({ path }) => path);
  assert.deepEqual(removed, [`/containers/${id}`]);
});

test("creates a missing mount source as a directory and retries", async () => {
  const refuse: EngineAnswer = { status: 400, body: { message: "bind source path does not exist: /data/new" } };
  await using engine = await engineWith(createdState, (_call, nth) => (nth === 0 ? refuse : created()));
  const { host } = engine.parts;
  const mounts = [{ hostPath: "/data/new", containerPath: "/m" }];
  await dockerContainers(engine.parts).createContainer(request({ mounts }), signal());
  assert.equal((await host.fs.stat("/data/new")).kind, "directory");
  await using stubborn = await engineWith(createdState, () => refuse);
  await assert.rejects(dockerContainers(stubborn.parts).createContainer(request(), signal()), {
    code: "invalid_argument",
  });
  assert.equal(stubborn.calls.filter(({ method }) => method === "POST").length, 1);
});

test("creates nothing for an unsupported request, or in an ended sandbox", async () => {
  await using engine = await engineWith(createdState, created);
  const create = (config: object) => dockerContainers(engine.parts).createContainer(request(config), signal());
  await assert.rejects(create({ envs: [{ key: "A", value: Buffer.from([0xff]) }] }), { code: "invalid_argument" });
  const sandboxGone = { ...request(), podSandboxId: "gone" };
  await assert.rejects(dockerContainers(engine.parts).createContainer(sandboxGone, signal()), { code: "not_found" });
  assert.ok(engine.calls.every(({ method }) => method === "GET"));
});

test("refuses to start a container twice", async () => {
  for (const state of [runningState, exitedState, { ...createdState, ExitCode: 127 }]) {
    await using engine = await engineWith(state, () => ({ status: 204 }));
    await assert.rejects(dockerContainers(engine.parts).startContainer(id, signal()), { code: "failed_precondition" });
    assert.ok(engine.calls.every(({ method }) => method === "GET"));
  }
  await using engine = await engineWith(createdState, () => ({ status: 204 }));
  await dockerContainers(engine.parts).startContainer(id, signal());
  assert.equal(engine.calls.at(-1)?.path, `/containers/${id}/start`);
});

test("a failed start has the daemon's message", async () => {
  const message = 'exec: "nosuch": executable file not found in $PATH';
  await using engine = await engineWith(createdState, () => ({ status: 400, body: { message } }));
  await assert.rejects(dockerContainers(engine.parts).startContainer(id, signal()), { message });
});

test("stops with the grace period in whole seconds; a container that ended meanwhile counts as stopped", async () => {
  await using engine = await engineWith(runningState, () => ({ status: 304 }));
  await dockerContainers(engine.parts).stopContainer(id, 1.2, signal());
  assert.equal(engine.calls.at(-1)?.query.get("t"), "2");
  await using ended = await engineWith(exitedState, () => ({ status: 500 }));
  await dockerContainers(ended.parts).stopContainer(id, 1, signal());
  assert.ok(ended.calls.every(({ method }) => method === "GET"));
});

test("adds the grace period to the stop call's deadline", async () => {
  await using engine = await engineWith(runningState, () => ({ status: 204 }));
  const waits: (number | undefined)[] = [];
  const clock = {
    ...engine.parts.clock,
    within: (ms: number, outer?: AbortSignal) => {
      waits.push(ms);
      return outer ?? signal();
    },
  };
  const docker = createDockerClient({
    socket: "/run/docker.sock",
    host: engine.parts.host,
    requestTimeoutMs: 60_000,
    clock,
  });
  await dockerContainers({ ...engine.parts, docker }).stopContainer(id, 30, signal());
  docker.close();
  assert.deepEqual(waits, [60_000, 90_000]);
});

test("removal kills the container and removes its volumes and log link, but not another container's link", async () => {
  await using engine = await engineWith(runningState, () => ({ status: 204 }), { [logPathLabel]: logLink });
  const { host } = engine.parts;
  const containers = dockerContainers(engine.parts);
  const link = (target: string) =>
    host.fs.apply([
      { kind: "mkdir", path: "/var/log/pods/default_web_uid-1/main", parents: true },
      { kind: "remove", path: logLink },
      { kind: "symlink", path: logLink, target },
    ]);
  await link(logFile);
  await containers.removeContainer(id, signal());
  const removal = engine.calls.at(-1);
  assert.deepEqual([removal?.method, removal?.query.get("force"), removal?.query.get("v")], ["DELETE", "true", "true"]);
  await assert.rejects(host.fs.lstat(logLink), { code: "not_found" });
  await link("/var/lib/docker/containers/other/other-json.log");
  await containers.removeContainer(id, signal());
  assert.equal((await host.fs.lstat(logLink)).kind, "symlink");
});

test("waits for a removal started by another client", async () => {
  await using engine = await engineWith(runningState, ({ path }) =>
    path.endsWith("/wait")
      ? { status: 200, body: { StatusCode: 0, Error: null } }
      : { status: 409, body: { message: "removal of container is already in progress" } },
  );
  await dockerContainers(engine.parts).removeContainer(id, signal());
  assert.equal(engine.calls.at(-1)?.query.get("condition"), "removed");
  await using failing = await engineWith(runningState, ({ path }) =>
    path.endsWith("/wait") ? { status: 200, body: { Error: { Message: "device busy" } } } : { status: 409 },
  );
  await assert.rejects(dockerContainers(failing.parts).removeContainer(id, signal()), { message: "device busy" });
});

test("a foreign container is not_found and stays unchanged", async () => {
  await using engine = await engineWith(runningState, () => ({ status: 204 }), { "graftlet.dev/node": "n2" });
  const containers = dockerContainers(engine.parts);
  const expected = { code: "not_found" };
  await assert.rejects(containers.startContainer(id, signal()), expected);
  await assert.rejects(containers.stopContainer(id, 0, signal()), expected);
  await assert.rejects(containers.removeContainer(id, signal()), expected);
  await assert.rejects(containers.containerStatus(id, signal()), expected);
  await assert.rejects(containers.containerStatus("box", signal()), expected);
  assert.ok(engine.calls.every(({ method }) => method === "GET"));
});

test("lists this node's containers with the same states as their statuses, including failed starts", async () => {
  const failed = { ...createdState, ExitCode: 127 };
  await using engine = await fakeEngine(({ path }) => {
    if (path.endsWith("/gone/json")) return { status: 404, body: { message: "No such container" } };
    if (path === `/containers/${id}/json`) return { status: 200, body: inspection(id, containerType, failed) };
    const listed = { Names: ["/k8s_main_web_default_uid-1_2"], Labels: {}, Image: "busybox", Created: 1 };
    const ids = [id, "gone"];
    return { status: 200, body: ids.map((Id) => ({ ...listed, Id, State: "created" })) };
  });
  const containers = dockerContainers(engine.parts);
  const listed = await containers.listContainers(
    ContainerFilter.fromPartial({ podSandboxId: "box", labelSelector: { app: "web" } }),
    signal(),
  );
  assert.deepEqual(
    listed.map(({ id: one, state, metadata }) => ({ one, state, metadata })),
    [{ one: id, state: ContainerState.CONTAINER_EXITED, metadata: { name: "main", attempt: 2 } }],
  );
  const filters = JSON.parse(engine.calls[0]?.query.get("filters") ?? "{}") as { label: string[] };
  assert.deepEqual(filters.label.toSorted(), [
    "app=web",
    "graftlet.dev/node=n1",
    "io.kubernetes.docker.type=container",
    "io.kubernetes.sandbox.id=box",
  ]);
});

test("reopening a log is unimplemented, with an explanation", async () => {
  await using engine = await engineWith(runningState, () => ({ status: 204 }));
  await assert.rejects(dockerContainers(engine.parts).reopenContainerLog(id, signal()), { code: "unimplemented" });
});
