import assert from "node:assert/strict";
import { test } from "node:test";
import { type RuntimeProtocol, detectRuntime, wellKnownSockets } from "../../../../../providers/ssh/runtime/detect.ts";
import { RunPodSandboxRequest } from "../../../../../src/gen/cri.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import type { Address } from "../../../../../src/seams/host.ts";
import type { Runtime } from "../../../../../src/seams/runtime.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { fakeHost } from "../../../../fakes/host.ts";
import { type FakeRuntime, fakeRuntime } from "../../../../fakes/runtime.ts";
import { never } from "../../../../fakes/signals.ts";

const containerd = "/run/containerd/containerd.sock";
const docker = "/var/run/docker.sock";

/** A target with a containerd, which answers only if `alive`, over HTTP/1.1 with `page`, and a Docker Engine unless `engine` is false. */
async function target({ engine = true, alive = false, page = "", reached = () => Promise.resolve() } = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  for (const path of ["/run/containerd", "/var/run"])
    await host.fs.apply([{ kind: "mkdir", path, mode: 0o755, parents: true }]);
  for (const socket of engine ? [containerd, docker] : [containerd]) host.files.put(socket, { kind: "socket" });
  if (engine)
    await host.listen(
      { unix: docker },
      (connection) => void connection.once("data", () => connection.end("HTTP/1.1 200")),
    );
  if (alive)
    await host.listen(
      { unix: containerd },
      (connection) => void connection.once("data", () => connection.end(page || undefined)),
    );
  const dial = async (to: Address, signal?: AbortSignal) => {
    if (!alive && "unix" in to && to.unix === containerd) throw new CodedError("unavailable", `${containerd}: refused`);
    return host.dial(to, signal);
  };
  const made: [string, RuntimeProtocol][] = [];
  const runtimes = new Map([containerd, docker].map((socket) => [socket, fakeRuntime({ clock })]));
  const disposed: string[] = [];
  const createRuntime = (socket: string, protocol: RuntimeProtocol): Runtime => {
    made.push([socket, protocol]);
    const runtime = runtimes.get(socket);
    assert.ok(runtime);
    return { ...runtime, [Symbol.asyncDispose]: async () => void disposed.push(socket) };
  };
  const find = (wanted: Parameters<typeof detectRuntime>[1]) =>
    detectRuntime(
      {
        nodeName: "node-1",
        host: { ...host, dial },
        createRuntime,
        checkReachable: reached,
        log: silentLog(),
      },
      wanted,
      never,
    );
  const at = (socket: string): FakeRuntime => runtimes.get(socket) ?? assert.fail();
  return { find, made, disposed, containerd: at(containerd), docker: at(docker) };
}

const failing = new CodedError("unavailable", "it is starting");

/** A pod of a node in a runtime. */
async function addPod(runtime: FakeRuntime, node: string): Promise<void> {
  const metadata = { name: "pod", namespace: "default", uid: "uid", attempt: 0 };
  const labels = { "graftlet.dev/node": node };
  await runtime.runPodSandbox(RunPodSandboxRequest.fromPartial({ config: { metadata, labels } }), never);
}

test("chooses the first of two runtimes that answer, and disposes of the other", async () => {
  const { find, disposed } = await target({ alive: true });
  assert.equal((await find("auto")).socket, containerd);
  assert.deepEqual(disposed, [docker]);
});

test("prefers a runtime with a pod network, but accepts one without it if there is no other", async () => {
  const both = await target({ alive: true });
  both.containerd.setCondition("NetworkReady", false);
  assert.equal((await both.find("auto")).socket, docker);
  assert.deepEqual(both.disposed, [containerd]);
  both.docker.setCondition("NetworkReady", false);
  assert.equal((await both.find("auto")).socket, containerd);
});

test("prefers the runtime with pods of the node regardless of its network, and ignores pods of other nodes", async () => {
  const { find, ...runtimes } = await target({ alive: true });
  await addPod(runtimes.containerd, "node-2");
  await addPod(runtimes.docker, "node-1");
  runtimes.docker.setCondition("NetworkReady", false);
  assert.equal((await find("auto")).socket, docker);
});

test("chooses no runtime while one of them cannot list its pods", async () => {
  const { find, disposed, ...runtimes } = await target({ alive: true });
  runtimes.containerd.failNext("listPodSandbox", failing);
  await assert.rejects(find("auto"), failing);
  assert.deepEqual(disposed.toSorted(), [containerd, docker]);
});

test("a runtime that serves other pages beside gRPC, as CRI-O does, is a CRI runtime", async () => {
  const { find, made } = await target({ alive: true, page: "HTTP/1.1 404 Not Found" });
  assert.equal((await find("auto")).socket, containerd);
  assert.deepEqual(Object.fromEntries(made), { [containerd]: "cri", [docker]: "docker" });
});

test("skips a socket without a runtime", async () => {
  const { find, made } = await target();
  assert.equal((await find("auto")).socket, docker);
  assert.deepEqual(made, [[docker, "docker"]]);
});

test("lists the sockets tried, with reasons, if no runtime answers", async () => {
  const { find } = await target({ engine: false });
  await assert.rejects(find("auto"), (error: CodedError) => {
    assert.equal(error.code, "failed_precondition");
    for (const socket of wellKnownSockets)
      assert.ok(
        error.message.includes(`${socket} (${socket === containerd ? `${containerd}: refused` : "does not exist"})`),
      );
    return true;
  });
  await assert.rejects(find({ socket: containerd }), {
    code: "failed_precondition",
    message: /tried \/run\/containerd\/containerd\.sock \(.*refused\): start containerd/,
  });
});

test("passes on the error of an unreachable target", async () => {
  const away = new CodedError("unavailable", "root@box is out of reach");
  const { find } = await target({ engine: false, reached: () => Promise.reject(away) });
  await assert.rejects(find("auto"), away);
});
