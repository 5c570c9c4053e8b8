import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import type { CommandRequest, RunCommand } from "../../../src/streams/stream-server.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { ask, dialSpdy, dialWebSocket, spdyHeaders, startServer, until } from "./clients.ts";

const request: CommandRequest = { stdin: false, stdout: true, stderr: false, tty: false };
const done: RunCommand = () => Promise.resolve(0);
const v4 = spdyHeaders("v4.channel.k8s.io");

test("an endpoint can be used only once", async () => {
  await using server = startServer();
  const endpoint = server.command(request, done);
  assert.match(endpoint.path, /^\/[a-z]+\/[\w-]{8,}$/);
  const first = await ask(endpoint, v4);
  assert.equal(first.status, 101);
  first.upgraded?.destroy();
  const second = await ask(endpoint, v4);
  assert.deepEqual([second.status, second.body], [404, "404 page not found\n"]);
  const unknown = await ask({ ...endpoint, path: "/command/abcdefgh" }, {}, "GET");
  assert.equal(unknown.status, 404);
  assert.equal((await ask({ ...endpoint, path: "/" }, {}, "GET")).status, 404);
});

test("an endpoint expires after a minute; at most 1000 exist at a time", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const [early, late] = [server.command(request, done), server.command(request, done)];
  await clock.advance(59_999);
  const inTime = await ask(early, v4);
  assert.equal(inTime.status, 101);
  inTime.upgraded?.destroy();
  await clock.advance(1);
  assert.equal((await ask(late, v4)).status, 404);
  const endpoints = Array.from({ length: 1000 }, () => server.portForward([], () => Promise.reject(new Error("no"))));
  assert.equal(new Set(endpoints.map(({ path }) => path)).size, 1000);
  assert.throws(() => server.command(request, done), { code: "resource_exhausted" });
  await clock.advance(60_000);
  server.command(request, done);
});

test("answers requests that open no stream over HTTP, and consumes the endpoint", async () => {
  await using server = startServer();
  const cases = [
    [{}, "GET", 400, /X-Stream-Protocol-Version/],
    [{ "x-stream-protocol-version": "v4.channel.k8s.io" }, "POST", 400, /missing upgrade headers/],
    [{ ...v4, upgrade: "h2c" }, "POST", 400, /missing upgrade headers/],
    [{ connection: "Upgrade", upgrade: "SPDY/3.1" }, "POST", 400, /X-Stream-Protocol-Version/],
    [spdyHeaders("portforward.k8s.io"), "POST", 403, /unable to negotiate protocol/],
    [v4, "PUT", 405, /Method Not Allowed/],
  ] as const;
  for (const [headers, method, status, body] of cases) {
    const endpoint = server.command(request, done);
    const answer = await ask(endpoint, headers, method);
    assert.equal(answer.status, status, JSON.stringify(headers));
    assert.match(answer.body, body);
    assert.equal(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert.equal((await ask(endpoint, v4)).status, 404);
  }
});

test("a command needs a stream, and cannot have both stderr and a terminal", async () => {
  await using server = startServer();
  const [none, both] = [
    { ...request, stdout: false },
    { ...request, stderr: true, tty: true },
  ];
  for (const wrong of [none, both]) assert.throws(() => server.command(wrong, done), { code: "invalid_argument" });
});

test("closes an unused connection after 30 s", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const connection = await server.command(request, done).dial(never);
  connection.on("error", () => undefined);
  await clock.advance(29_999);
  assert.equal(connection.destroyed, false);
  await clock.advance(1);
  assert.equal(connection.destroyed, true);
  assert.equal(clock.pending, 0);
});

test("dialing respects the signal and fails on a closed server", async () => {
  const server = startServer();
  const endpoint = server.command(request, done);
  await assert.rejects(endpoint.dial(AbortSignal.abort()), { code: "cancelled" });
  await server[Symbol.asyncDispose]();
  await assert.rejects(endpoint.dial(never), { code: "unavailable" });
});

test("disposal closes every connection and waits for running commands", async () => {
  const clock = fakeClock();
  const server = startServer(clock);
  let running = 0;
  const run: RunCommand = async ({ stdout }, signal) => {
    running++;
    stdout?.write("running");
    await once(signal, "abort");
    await new Promise(setImmediate);
    running--;
    return 0;
  };
  const spdy = await dialSpdy(server.command(request, run));
  for (const streamtype of ["error", "stdout"]) await spdy.open({ streamtype });
  const webSocket = await dialWebSocket(server.command(request, run), "v5.channel.k8s.io");
  const forwarded = await dialSpdy(
    server.portForward([], (_port, signal) => once(signal, "abort").then(() => Promise.reject(new Error("late")))),
    "portforward.k8s.io",
  );
  for (const streamtype of ["error", "data"]) await forwarded.open({ streamtype, port: "1", requestid: "1" });
  await until(() => running === 2);
  await server[Symbol.asyncDispose]();
  assert.equal(running, 0);
  await Promise.all([spdy.closed, webSocket.closed, forwarded.closed]);
  assert.equal(clock.pending, 0, "no timer is left");
});

test("releases everything of a finished command", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const client = await dialSpdy(server.command(request, done));
  const error = await client.open({ streamtype: "error" });
  const stdout = await client.open({ streamtype: "stdout" });
  assert.equal(await error.text, '{"status":"Success"}');
  assert.equal(await stdout.text, "");
  await client.closed;
  client.socket.end();
  await until(() => clock.pending === 0);
});

test("drops a client that does not hang up after 10 s", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const client = await dialSpdy(server.command(request, done));
  await client.open({ streamtype: "error" });
  void client.open({ streamtype: "stdout" }).catch(() => undefined);
  await client.closed;
  assert.equal(clock.pending, 1);
  await clock.advance(10_000);
  assert.equal(clock.pending, 0);
  const failed = once(client.socket, "error");
  client.socket.write("too late");
  assert.equal(((await failed)[0] as { code: string }).code, "unavailable");
});
