import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { RunCommand } from "../../../src/seams/runtime.ts";
import type { ContainerFilter, PodSandboxFilter } from "../../../src/gen/cri.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { backend, spdy, spdyForward, upgrade, webSocket } from "./backend.ts";
import { adminToken, ask, runtimeOf, start } from "./harness.ts";
import { webSocketTo } from "./spdy-runtime.ts";

const pod = aPod(
  { containers: [aContainer("c"), aContainer("term", { tty: true })] },
  { name: "p", namespace: "ns", uid: "uid-1" },
);

const running = { listContainers: () => Promise.resolve([{ id: "cid", createdAt: 1n }] as never) };
const everywhere = "/exec/ns/p/c?command=sh&command=-c&input=1&output=1&error=1";

test("runs a command itself for a runtime without a streaming server, until the server stops", async () => {
  const runs: (readonly [boolean, boolean])[] = [];
  const run: RunCommand = async ({ stdout, stderr }, signal) => {
    runs.push([!!stdout, !!stderr]);
    stdout?.write("so far");
    await once(signal, "abort");
    throw new Error("aborted");
  };
  const server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(run) }) },
  });
  const client = await webSocketTo(server, "/exec/ns/p/c?command=sh&output=1", "v5.channel.k8s.io");
  while (client.text(1) === "") await new Promise(setImmediate);
  await server.stop();
  assert.equal(await client.closed, 1000);
  assert.match(client.text(3), /the connection to the container was lost/);
  assert.deepEqual(runs, [[true, false]]);
});

test("execs in the newest running container with the requested pod and name", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  const filters: (ContainerFilter | undefined)[] = [];
  const ids: string[] = [];
  const runtime = runtimeOf({
    listContainers: (filter) => {
      filters.push(filter);
      return Promise.resolve([
        { id: "old", createdAt: 1n },
        { id: "new", createdAt: 3n },
        { id: "mid", createdAt: 2n },
      ] as never);
    },
    exec: ({ containerId }) => {
      ids.push(containerId);
      return Promise.resolve(served.endpoint);
    },
  });
  await using server = await start({ pods: [pod], deps: { runtime } });
  const { socket } = await upgrade(server, "/exec/ns/p/some-uid/c?command=id&output=1");
  socket.destroy();
  assert.deepEqual(ids, ["new"]);
  assert.deepEqual(filters[0]?.labelSelector, {
    "io.kubernetes.pod.uid": "uid-1",
    "io.kubernetes.container.name": "c",
  });
  assert.equal(filters[0]?.state?.state, 1);
});

test("attach uses the container's tty setting", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  const attached: unknown[] = [];
  const attach = (asked: unknown) => {
    attached.push(asked);
    return Promise.resolve(served.endpoint);
  };
  await using server = await start({ pods: [pod], deps: { runtime: runtimeOf({ ...running, attach }) } });
  for (const path of ["/attach/ns/p/term?input=1&output=1&error=1", "/attach/ns/p/uid-1/c?output=1&error=1"])
    (await upgrade(server, path)).socket.destroy();
  assert.deepEqual(attached, [
    { containerId: "cid", tty: true, stdin: true, stdout: true, stderr: false },
    { containerId: "cid", tty: false, stdin: false, stdout: true, stderr: true },
  ]);
});

test("port-forward uses the newest ready sandbox, and takes ports from the query only over WebSocket", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  const forwarded: unknown[] = [];
  const filters: (PodSandboxFilter | undefined)[] = [];
  const runtime = runtimeOf({
    listPodSandbox: (filter) => {
      filters.push(filter);
      return Promise.resolve([{ id: "sb", createdAt: 1n }] as never);
    },
    portForward: (asked) => {
      forwarded.push(asked);
      return Promise.resolve(served.endpoint);
    },
  });
  await using server = await start({ pods: [pod], deps: { runtime } });
  const tunnel = { ...webSocket, "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io" };
  (await upgrade(server, "/portForward/ns/p?port=80", spdyForward)).socket.destroy();
  (await upgrade(server, "/portForward/ns/p/uid-1?port=80,81&port=82", webSocket, "GET")).socket.destroy();
  (await upgrade(server, "/portForward/ns/p", tunnel, "GET")).socket.destroy();
  assert.deepEqual(
    forwarded,
    [[], [80, 81, 82], []].map((port) => ({ podSandboxId: "sb", port })),
  );
  assert.deepEqual(filters[0]?.labelSelector, { "io.kubernetes.pod.uid": "uid-1" });
  assert.equal(filters[0]?.state?.state, 0);
  for (const [query, text] of [
    ["", 'query parameter "port" is required'],
    ["?port=", 'query parameter "port" cannot be empty'],
    [`?port=${"1,".repeat(128)}1`, 'query parameter "port" names more than 128 ports: request fewer'],
    [`?${"port=1&".repeat(129)}`, 'query parameter "port" names more than 128 ports: request fewer'],
    ["?port=0", 'port "0" must be > 0'],
    ["?port=99999", 'unable to parse "99999" as a port: strconv.ParseUint: parsing "99999": value out of range'],
    ["?port=1,web", 'unable to parse "1,web" as a port: strconv.ParseUint: parsing "web": invalid syntax'],
  ] as const) {
    const { status, body } = await ask(server, `/portForward/ns/p${query}`, {
      headers: { ...webSocket, authorization: `Bearer ${adminToken}` },
    });
    assert.deepEqual([status, body], [400, text]);
  }
});

test("refuses invalid streaming requests in the kubelet's words", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  const missing = runtimeOf({ exec: () => Promise.resolve(served.endpoint) });
  await using server = await start({ pods: [pod], deps: { runtime: missing } });
  const refused = async (path: string) => {
    const { status, body } = await ask(server, path, {
      method: "POST",
      headers: { ...spdy, authorization: `Bearer ${adminToken}` },
    });
    return [status, body];
  };
  assert.deepEqual(await refused("/exec/ns/p/c?command=id"), [
    400,
    "you must specify at least 1 of stdin, stdout, stderr",
  ]);
  assert.deepEqual(await refused("/exec/ns/p/c?command=id&tty=1&error=1"), [
    400,
    "you must specify at least 1 of stdin, stdout, stderr",
  ]);
  assert.deepEqual(await refused("/exec/ns/other/c?command=id&output=1"), [404, "pod does not exist"]);
  assert.deepEqual(await refused("/exec/ns/p/c?command=id&output=1"), [500, 'container not found ("c")']);
  assert.deepEqual(await refused("/attach/ns/p/c?output=1"), [500, "container c not found in pod p_ns"]);
  assert.deepEqual(await refused("/attach/ns/p/wrong-uid/c?output=1"), [500, "pod p_ns not found"]);
  assert.deepEqual(await refused("/portForward/ns/other"), [404, "pod does not exist"]);
  assert.deepEqual(await refused("/portForward/ns/p/wrong-uid"), [404, "pod not found"]);
  assert.deepEqual(await refused("/portForward/ns/p"), [500, 'pod not found ("p_ns")']);
});

test("keeps the meaning of the runtime's errors, and does not call the runtime for a request without an upgrade", async () => {
  const failing = (reason: Error) => runtimeOf({ ...running, exec: () => Promise.reject(reason) });
  const cases = [
    [new CodedError("not_found", "no such container"), 404, "NotFound desc = no such container"],
    [new CodedError("resource_exhausted", "too many"), 429, "ResourceExhausted desc = too many"],
    [new CodedError("unknown", "broken"), 500, "Unknown desc = broken"],
  ] as const;
  for (const [error, status, text] of cases) {
    await using server = await start({ pods: [pod], deps: { runtime: failing(error) } });
    const answer = await ask(server, everywhere, {
      method: "POST",
      headers: { ...spdy, authorization: `Bearer ${adminToken}` },
    });
    assert.deepEqual([answer.status, answer.body], [status, `rpc error: code = ${text}`]);
    assert.equal(answer.headers["retry-after"], status === 429 ? "60" : undefined);
  }
});

test("forwards a response other than 101 with its body, and reports a missing response", async (t) => {
  const forbidding = await backend(
    t,
    () => {},
    (_request, response) =>
      response.writeHead(403, { "x-stream-protocol-version": "v1" }).end("unable to negotiate protocol"),
  );
  const redirecting = await backend(
    t,
    () => {},
    (_request, response) => response.writeHead(302, { location: "http://elsewhere" }).end(),
  );
  const silent = await backend(
    t,
    () => {},
    (request) => request.socket.destroy(),
  );
  const expected = [
    [forbidding, 403, /^unable to negotiate protocol$/],
    [redirecting, 500, /^invalid upgrade response: status code 302\n$/],
    [silent, 500, /^error dialing backend: /],
  ] as const;
  for (const [served, status, body] of expected) {
    await using server = await start({
      pods: [pod],
      deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
    });
    const answer = await ask(server, everywhere, {
      method: "POST",
      headers: { ...spdy, authorization: `Bearer ${adminToken}` },
    });
    assert.equal(answer.status, status);
    assert.match(answer.body, body);
  }
  for (const socket of forbidding.connections) if (!socket.destroyed) await once(socket.resume(), "close");
});

test("refuses an exec request without an upgrade", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  await using server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
  });
  const { status, body } = await ask(server, everywhere, { method: "POST" });
  assert.deepEqual([status, body], [500, "Upgrade request required\n"]);
  assert.equal(served.connections.length, 0);
});

test("closes the backend's connection when the client vanishes", async (t) => {
  const ended = Promise.withResolvers<void>();
  const served = await backend(t, (socket) => {
    socket.on("data", () => {});
    socket.on("end", () => socket.end());
    socket.on("close", () => ended.resolve());
  });
  await using server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
  });
  const { socket } = await upgrade(server, everywhere);
  socket.write("something");
  socket.destroy();
  await ended.promise;
});

test("waits thirty seconds for the backend's handshake", async (t) => {
  const silent = await backend(
    t,
    () => {},
    () => {},
  );
  const clock = fakeClock();
  await using server = await start({
    pods: [pod],
    deps: { clock, runtime: runtimeOf({ ...running, exec: () => Promise.resolve(silent.endpoint) }) },
  });
  const answer = ask(server, everywhere, {
    method: "POST",
    headers: { ...spdy, authorization: `Bearer ${adminToken}` },
  });
  while (silent.connections.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(30_000);
  assert.deepEqual([(await answer).status, (await answer).body], [500, "no answer within 30000 ms\n"]);
  const [connection] = silent.connections;
  assert.ok(connection);
  if (!connection.destroyed) await once(connection.resume(), "close");
});

test("ends streams immediately when the server stops", async (t) => {
  const served = await backend(t, (socket) => socket.on("data", () => {}));
  const server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
  });
  const { socket } = await upgrade(server, everywhere);
  socket.on("error", () => {});
  const closed = once(socket.resume(), "close");
  await server.stop();
  await closed;
});
