import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { Readable } from "node:stream";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { ContainerFilter, PodSandboxFilter } from "../../../src/gen/cri.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { backend, spdy, upgrade } from "./backend.ts";
import { adminToken, ask, runtimeOf, start } from "./harness.ts";

const pod = aPod(
  { containers: [aContainer("c"), aContainer("term", { tty: true })] },
  { name: "p", namespace: "ns", uid: "uid-1" },
);

const running = { listContainers: () => Promise.resolve([{ id: "cid", createdAt: 1n }] as never) };
const everywhere = "/exec/ns/p/c?command=sh&command=-c&input=1&output=1&error=1";

test("exec: rewrites the handshake, forwards bytes in both directions and half-closes", async (t) => {
  const served = await backend(t, (socket) => {
    socket.on("data", (part) => socket.write(`echo ${part}`));
    socket.on("end", () => socket.end("bye"));
  });
  const execs: unknown[] = [];
  const exec = (asked: unknown) => {
    execs.push(asked);
    return Promise.resolve(served.endpoint);
  };
  await using server = await start({ pods: [pod], deps: { runtime: runtimeOf({ ...running, exec }) } });
  const { response, socket } = await upgrade(server, everywhere);
  assert.equal(response.statusCode, 101);
  assert.equal(response.headers["x-stream-protocol-version"], "v4.channel.k8s.io");
  const parts: Buffer[] = [];
  socket.on("data", (part: Buffer) => parts.push(part));
  socket.write("hello");
  await once(socket, "data");
  socket.end();
  await once(socket, "end");
  assert.equal(Buffer.concat(parts).toString(), "echo hellobye");
  assert.deepEqual(execs, [
    { containerId: "cid", cmd: ["sh", "-c"], tty: false, stdin: true, stdout: true, stderr: true },
  ]);
  const [received] = served.requests;
  assert.ok(received);
  assert.deepEqual(
    [received.method, received.url, received.headers.host],
    ["POST", served.endpoint.path, served.endpoint.host],
  );
  assert.deepEqual(Object.keys(received.headers).sort(), [
    "connection",
    "content-length",
    "host",
    "upgrade",
    "x-stream-protocol-version",
  ]);
});

test("exec over WebSocket: forwards its headers to an endpoint that supports it, but no token", async (t) => {
  const served = await backend(t, (socket) => socket.end("hi"));
  const endpoint = { ...served.endpoint, webSockets: true } as const;
  await using server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(endpoint) }) },
  });
  const token = `base64url.bearer.authorization.k8s.io.${Buffer.from(adminToken).toString("base64url")}`;
  const headers = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-key": "a2V5",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": `${token}, v4.channel.k8s.io`,
  };
  const { socket, head } = await upgrade(server, everywhere, headers, "GET");
  assert.equal(String(head.length > 0 ? head : (await once(socket, "data"))[0]), "hi");
  socket.end();
  const [received] = served.requests;
  assert.ok(received);
  assert.equal(received.method, "GET");
  assert.equal(received.headers["sec-websocket-key"], "a2V5");
  assert.equal(received.headers["sec-websocket-protocol"], "v4.channel.k8s.io");
});

test("execs in the newest running container of that pod and name", async (t) => {
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

test("port-forward uses the newest ready sandbox, and ports of the query only over WebSocket", async (t) => {
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
  const websocket = { connection: "Upgrade", upgrade: "websocket" };
  const tunnel = {
    ...websocket,
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io",
  };
  (await upgrade(server, "/portForward/ns/p?port=80")).socket.destroy();
  (await upgrade(server, "/portForward/ns/p/uid-1?port=80,81&port=82", websocket)).socket.destroy();
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
      headers: { ...websocket, authorization: `Bearer ${adminToken}` },
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

test("keeps the meaning of the runtime's errors, and does not call it for a request without upgrade", async () => {
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

test("refuses an exec without upgrade", async (t) => {
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

test("closes the backend's connection ten seconds after the client's end", async (t) => {
  const ended = Promise.withResolvers<void>();
  const served = await backend(t, (socket) => {
    socket.on("end", () => ended.resolve());
    socket.resume();
  });
  const clock = fakeClock();
  await using server = await start({
    pods: [pod],
    deps: { clock, runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
  });
  const { socket } = await upgrade(server, everywhere);
  socket.on("error", () => {});
  socket.end();
  await ended.promise;
  // The handshake's timeout and the ten seconds.
  while (clock.pending < 2) await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(9_999);
  assert.equal(served.dialed[0]?.destroyed, false);
  await clock.advance(1);
  assert.equal(served.dialed[0]?.destroyed, true);
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

test("transfers 64 MiB in each direction unchanged", async (t) => {
  const total = 64 * 1024 * 1024;
  const received = createHash("sha256");
  const served = await backend(t, (socket, head) => {
    received.update(head);
    socket.on("data", (part: Buffer) => received.update(part));
    socket.once("end", () => bytes(total).pipe(socket));
  });
  await using server = await start({
    pods: [pod],
    deps: { runtime: runtimeOf({ ...running, exec: () => Promise.resolve(served.endpoint) }) },
  });
  const { socket, head } = await upgrade(server, everywhere);
  const back = createHash("sha256").update(head);
  socket.on("data", (part: Buffer) => back.update(part));
  bytes(total).pipe(socket);
  await once(socket, "end");
  const expected = createHash("sha256");
  for await (const part of bytes(total)) expected.update(part as Buffer);
  const sum = expected.digest("hex");
  assert.equal(received.digest("hex"), sum);
  assert.equal(back.digest("hex"), sum);
});

/** Deterministic bytes without equal blocks. */
function bytes(total: number): Readable {
  const block = Buffer.alloc(64 * 1024, "0123456789abcdef");
  let at = 0;
  return new Readable({
    read() {
      if (at >= total) return void this.push(null);
      const next = Buffer.from(block);
      next.writeUInt32BE(at, 0);
      at += next.length;
      this.push(next);
    },
  });
}
