import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { requestJson } from "../../../../../providers/docker/client/response-stream.ts";
import { createDockerClient } from "../../../../../providers/docker/client/client.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { fakeHost } from "../../../../fakes/host.ts";
import { never } from "../../../../fakes/signals.ts";

const socket = "/run/docker.sock";

/** A server on a fake host's socket that responds by path; `undefined` means never. */
async function engineThat(answer: (path: string) => { readonly status: number; readonly body: unknown } | undefined) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? "").split("?", 1)[0] ?? "";
    asked.push(path);
    const said = answer(path);
    if (said) response.writeHead(said.status, { "Content-Type": "application/json" }).end(JSON.stringify(said.body));
  });
  const connections: Duplex[] = [];
  const docker = createDockerClient({ socket, host, requestTimeoutMs: 1_000, clock });
  const listen = () =>
    host.listen({ unix: socket }, (connection) => {
      connections.push(connection);
      server.emit("connection", connection);
    });
  return { clock, host, docker, asked, connections, listen };
}

const version = { status: 200, body: { ApiVersion: "1.43", MinAPIVersion: "1.12", Version: "24.0.5" } };
const list = (docker: Awaited<ReturnType<typeof engineThat>>["docker"], signal = never) =>
  docker.request({ path: "/containers/json" }, signal);
const start = (docker: Awaited<ReturnType<typeof engineThat>>["docker"]) =>
  docker.request({ method: "POST", path: "/containers/c/start" }, never);

test("negotiates the version once", async () => {
  const { docker, asked, listen } = await engineThat((path) =>
    path === "/version" ? version : { status: 200, body: [] },
  );
  await using _listener = await listen();
  await list(docker);
  await list(docker);
  assert.deepEqual(asked, ["/version", "/v1.43/containers/json", "/v1.43/containers/json"]);
  assert.equal(await docker.apiVersion(never), "1.43");
});

test("negotiates the version again after the engine rejects it", async () => {
  let newest = "1.44";
  const { docker, asked, listen } = await engineThat((path) => {
    if (path === "/version") return { status: 200, body: { ApiVersion: newest, Version: "any" } };
    if (path.startsWith(`/v${newest}/`)) return { status: 200, body: [] };
    const message = `client version 1.44 is too new. Maximum supported API version is ${newest}`;
    return { status: 400, body: { message } };
  });
  await using _listener = await listen();
  await list(docker);
  newest = "1.41";
  await assert.rejects(list(docker), { code: "invalid_argument", message: /too new/ });
  await list(docker);
  assert.deepEqual(asked.slice(2), ["/v1.44/containers/json", "/version", "/v1.41/containers/json"]);
});

test("aborts an endless response and buffers at most the limit", async () => {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const block = Buffer.alloc(256 * 1024, " ");
  let sent = 0;
  const server = createServer((request, response) => {
    if (request.url?.startsWith("/version")) return void response.end(JSON.stringify(version.body));
    const more = () => {
      while (!response.destroyed && response.write(block)) sent += block.length;
      sent += block.length;
    };
    response.on("drain", more);
    more();
  });
  const docker = createDockerClient({ socket, host, requestTimeoutMs: 60_000, clock });
  await using _listener = await host.listen({ unix: socket }, (connection) => server.emit("connection", connection));
  await assert.rejects(list(docker), { code: "resource_exhausted", message: /GET \/containers\/json exceeds/ });
  assert.ok(sent < 64 * 2 ** 20, `${sent} bytes`);
});

test("reports a peer that is not a Docker Engine", async () => {
  const { docker, listen } = await engineThat(() => ({ status: 200, body: { hello: "world" } }));
  await using _listener = await listen();
  await assert.rejects(list(docker), {
    code: "failed_precondition",
    message: `the server at ${socket} is not a Docker Engine: set providerConfig.socket to the Docker Engine's socket.`,
  });
});

test("a missing daemon is unavailable and used as soon as it exists; its version is negotiated again", async () => {
  let api = "1.41";
  const { docker, asked, listen } = await engineThat((path) =>
    path === "/version" ? { status: 200, body: { ApiVersion: api, Version: "x" } } : { status: 200, body: [] },
  );
  const away = { code: "unavailable", message: new RegExp(`^no Docker Engine responds at ${socket}: start it`) };
  await assert.rejects(list(docker), away);
  {
    await using _listener = await listen();
    await list(docker);
  }
  await assert.rejects(list(docker), away);
  api = "1.43";
  await using _listener = await listen();
  await list(docker);
  assert.equal(asked.at(-1), "/v1.43/containers/json");
});

test("maps the HTTP status to a code and keeps the daemon's message", async () => {
  const said = { status: 409, body: { message: "the name is in use\n" } };
  const { docker, listen } = await engineThat((path) => (path === "/version" ? version : said));
  await using _listener = await listen();
  await assert.rejects(list(docker), { code: "conflict", message: "the name is in use" });
});

test("an unresponsive daemon fails at the deadline, or when the caller aborts", async () => {
  const { clock, docker, listen } = await engineThat((path) => (path === "/version" ? version : undefined));
  await using _listener = await listen();
  await docker.apiVersion(never);
  const stop = new AbortController();
  const cancelled = assert.rejects(list(docker, stop.signal), { code: "cancelled" });
  stop.abort();
  await cancelled;
  const late = assert.rejects(list(docker), { code: "deadline_exceeded" });
  await clock.advance(1_000);
  await late;
});

const answers = (path: string) => (path === "/version" ? version : { status: 200, body: [] });

test("keeps a connection for the next request, for a limited time", async () => {
  const { clock, docker, connections, listen } = await engineThat(answers);
  await using _listener = await listen();
  for (let time = 0; time < 3; time++) await list(docker);
  assert.equal(connections.length, 1);
  await Promise.all([list(docker), list(docker)]);
  assert.equal(connections.length, 2, "two at once need two");
  await clock.advance(60_000);
  await turn();
  await list(docker);
  assert.equal(connections.length, 3);
  docker.close();
});

test("uses a separate connection for requests that become streams", async () => {
  const { docker, connections, listen } = await engineThat(answers);
  await using _listener = await listen();
  await list(docker);
  for (let time = 0; time < 2; time++)
    await docker.call((_engine, signal, apart) => requestJson(apart, { path: "/containers/json", signal }), never);
  assert.equal(connections.length, 3);
  docker.close();
});

test("does not reuse a connection closed by the daemon", async () => {
  const { docker, connections, listen } = await engineThat(answers);
  await using _listener = await listen();
  await list(docker);
  connections[0]?.end();
  await turn();
  await start(docker);
  assert.equal(connections.length, 2);
  docker.close();
});

test("repeats a read once if its connection breaks, but never a modifying request", async () => {
  const { docker, asked, connections, listen } = await engineThat((path) => {
    if (path !== "/version") connections.at(-1)?.destroy();
    return answers(path);
  });
  await using _listener = await listen();
  await assert.rejects(list(docker), { code: "unavailable" });
  assert.deepEqual(asked, ["/version", "/v1.43/containers/json", "/v1.43/containers/json"]);
  asked.length = 0;
  await assert.rejects(start(docker), { code: "unavailable" });
  assert.deepEqual(asked, ["/version", "/v1.43/containers/c/start"]);
  docker.close();
});
