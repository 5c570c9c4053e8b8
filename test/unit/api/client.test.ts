import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import {
  constants,
  createSecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import { type AddressInfo, type Socket, connect, createServer as createTcpServer } from "node:net";
import { test } from "node:test";
import { inspect } from "node:util";
import type { ApiClient } from "../../../src/api/client.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { type Clock, systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { connected } from "./connected-client.ts";

const { signal } = new AbortController();

const overHttp = (listener: RequestListener) => connected(createServer(listener), {}, "http");
const json = JSON.stringify;

test("sends method, query, body, content type and user agent", async () => {
  const seen: unknown[] = [];
  await using t = await overHttp((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      const { authorization, "content-type": type, "user-agent": agent } = request.headers;
      seen.push([request.method, request.url, type, body, authorization, agent]);
      response.end(json({ kind: "Thing" }));
    });
  });
  assert.deepEqual(await t.client.get("/a", { signal, query: { x: "1&2", y: undefined } }), { kind: "Thing" });
  await t.client.patch("/a", { type: "strategic", body: { p: 1 } }, { signal });
  await t.client.patch("/a", { type: "json", body: [{ op: "remove" }] }, { signal });
  await t.client.delete("/a", { gracePeriodSeconds: 0 }, { signal });
  const who = ["Bearer one", "graftlet/test"];
  assert.deepEqual(seen, [
    ["GET", "/a?x=1%262", undefined, "", ...who],
    ["PATCH", "/a", "application/strategic-merge-patch+json", '{"p":1}', ...who],
    ["PATCH", "/a", "application/json-patch+json", '[{"op":"remove"}]', ...who],
    ["DELETE", "/a", "application/json", '{"gracePeriodSeconds":0}', ...who],
  ]);
});

test("maps error responses to error codes, with the server's message", async () => {
  const cases: readonly [number, string, string][] = [
    [400, "BadRequest", "invalid_argument"],
    [403, "Forbidden", "permission_denied"],
    [404, "NotFound", "not_found"],
    [409, "AlreadyExists", "already_exists"],
    [409, "Conflict", "conflict"],
    [422, "Invalid", "invalid_argument"],
    [429, "TooManyRequests", "resource_exhausted"],
    [500, "InternalError", "unavailable"],
  ];
  let next = 0;
  await using t = await overHttp((_request, response) => {
    const [status, reason] = cases[next] ?? assert.fail();
    response.statusCode = status;
    response.end(json({ kind: "Status", reason, message: `it is ${reason}` }));
  });
  for (next = 0; next < cases.length; next++) {
    const [status, reason, code] = cases[next] ?? assert.fail();
    await assert.rejects(t.client.get("/a", { signal }), { code, status, reason, message: `it is ${reason}` });
  }
});

test("retries after the delay in Retry-After, and once with new credentials after a 401", async () => {
  let busy = 2;
  await using t = await overHttp((request, response) => {
    if (request.headers.authorization === "Bearer one") response.statusCode = 401;
    else if (busy-- > 0) response.writeHead(429, { "retry-after": "0" });
    response.end(json({ kind: "Thing" }));
  });
  await assert.rejects(t.client.get("/a", { signal }), { code: "unauthenticated" });
  t.setToken("two");
  assert.deepEqual(await t.client.get("/a", { signal }), { kind: "Thing" });
  assert.equal(busy, -1);
});

test("health reports when the server becomes unreachable and when it is reachable again", async () => {
  const server = createServer((_request, response) => response.end("{}"));
  await using t = await connected(server, {}, "http");
  const states: string[] = [];
  t.client.health.onChange((state) => states.push(state.kind));
  assert.equal(t.client.health.state().kind, "unknown");
  await t.client.get("/a", { signal });
  const { port } = server.address() as AddressInfo;
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(t.client.get("/a", { signal }), { code: "unavailable" });
  await assert.rejects(t.client.get("/a", { signal }), { code: "unavailable" });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  await t.client.get("/a", { signal });
  assert.deepEqual(states, ["up", "down", "up"]);
});

test("cancels a call when its signal aborts", async () => {
  await using t = await overHttp((_request, response) => void setTimeout(() => response.end("{}"), 1_000).unref());
  const stop = new AbortController();
  const call = t.client.get("/a", { signal: stop.signal });
  stop.abort();
  await assert.rejects(call, { code: "cancelled" });
});

test("does not report the server as unreachable when a caller aborts a call with the code unavailable", async () => {
  await using t = await overHttp((_request, response) => void setTimeout(() => response.end("{}"), 1_000).unref());
  const stop = new AbortController();
  const call = t.client.get("/a", { signal: stop.signal });
  stop.abort(new CodedError("unavailable", "the target is lost"));
  await assert.rejects(call, { code: "unavailable", message: "the target is lost" });
  assert.equal(t.client.health.state().kind, "unknown");
});

const line = (type: string, name: string) => `${json({ type, object: { metadata: { name } } })}\n`;

test("watches over HTTP/1.1: joins events split across chunks, and throws on an error event", async () => {
  await using t = await overHttp((request, response) => {
    assert.equal(request.url, "/a?watch=true");
    const text =
      line("ADDED", "ä") +
      line("MODIFIED", "b") +
      json({ type: "ERROR", object: { code: 410, reason: "Expired", message: "too old" } });
    const bytes = Buffer.from(text);
    // The first chunk ends inside a character.
    response.write(bytes.subarray(0, text.indexOf("ä") + 1), () => response.end(bytes.subarray(text.indexOf("ä") + 1)));
  });
  const seen: unknown[] = [];
  const watching = async () => {
    for await (const { type, object } of t.client.watch<{ metadata: { name: string } }>("/a", { signal }))
      seen.push([type, object.metadata.name]);
  };
  await assert.rejects(watching(), { status: 410, message: "too old" });
  assert.deepEqual(seen, [
    ["ADDED", "ä"],
    ["MODIFIED", "b"],
  ]);
});

/** A TLS server with HTTP/2 that keeps its watches open. @param so overrides its address and clock. @param times requests that it
 *  refuses before it has read them. */
async function overHttp2(so?: { readonly port: number; readonly clock: Clock }, times = 0) {
  const refused: unknown[] = [];
  const pair = await makeSelfSigned("localhost", ["127.0.0.1"], Date.now());
  const sessions: ServerHttp2Session[] = [];
  const watches: Http2ServerResponse[] = [];
  const server = createSecureServer(
    { cert: pair.certificate, key: pair.key, allowHTTP1: true, settings: { maxConcurrentStreams: 2 } },
    (request: Http2ServerRequest, response: Http2ServerResponse) => {
      if (request.url === "/silent") return;
      if (request.url === "/echo") return void request.pipe(response);
      if (request.url === "/refused" && refused.length < times)
        return request.stream.close(refused.push(request) && constants.NGHTTP2_REFUSED_STREAM);
      if (!request.url.includes("watch=true")) return void response.end(json({ version: request.httpVersion }));
      if (request.url.startsWith("/forbidden"))
        return void response.writeHead(403).end(json({ kind: "Status", reason: "Forbidden", message: "no" }));
      response.write(line("ADDED", String(watches.push(response) - 1)));
    },
  );
  server.on("session", (session) => sessions.push(session));
  const ca = Buffer.from(pair.certificate).toString("base64");
  const t = await connected(server, { "certificate-authority-data": ca, "tls-server-name": "localhost" }, "https", so);
  const { port } = server.address() as AddressInfo;
  return { ...t, port, sessions, watches, [Symbol.asyncDispose]: t[Symbol.asyncDispose] };
}

/** A watch that has delivered its first event. */
async function opened(client: ApiClient, stop = signal) {
  const events = client.watch<{ metadata: { name: string } }>("/a", { signal: stop });
  const first = await events.next();
  assert.equal(first.done, false);
  return events;
}

test("shares HTTP/2 connections among calls and watches up to the server's limit", async () => {
  await using t = await overHttp2();
  const called = await Promise.all(["a", "b"].map((body) => t.client.create("/echo", { body }, { signal })));
  assert.deepEqual(called, [{ body: "a" }, { body: "b" }]);
  assert.deepEqual(await t.client.get("/a", { signal }), { version: "2.0" });
  const first = await opened(t.client);
  const second = await opened(t.client);
  assert.equal(t.sessions.length, 1);
  const third = await opened(t.client);
  assert.equal(t.sessions.length, 2);
  for (const watch of [first, second, third]) await watch.return();
});

test("clients share connections, but not their rate limits", async () => {
  await using t = await overHttp2();
  const limited = t.connections.client({ userAgent: "graftlet/limited", qps: 0.001, burst: 1 });
  assert.deepEqual(await limited.get("/a", { signal }), { version: "2.0" });
  assert.deepEqual(await t.client.get("/a", { signal }), { version: "2.0" });
  assert.equal(t.sessions.length, 1);
  const soon = AbortSignal.timeout(50);
  await assert.rejects(limited.get("/a", { signal: soon }));
  assert.deepEqual(await t.client.get("/a", { signal }), { version: "2.0" });
});

test("sends a call again, over another connection, that the server has refused before reading it", async () => {
  await using t = await overHttp2(undefined, 2);
  assert.deepEqual(await t.client.get("/refused", { signal }), { version: "2.0" });
  assert.equal(t.sessions.length, 3);
  await using never = await overHttp2(undefined, 100);
  await assert.rejects(never.client.get("/refused", { signal }), { code: "unavailable" });
  assert.ok(never.sessions.length < 10, String(never.sessions.length));
});

test("a call that was not answered in time is followed by calls over another connection, while watches stay", async () => {
  await using t = await overHttp2();
  const watch = await opened(t.client);
  const soon = systemClock().within(50);
  await assert.rejects(t.client.get("/silent", { signal: soon }), { code: "deadline_exceeded" });
  await t.client.get("/a", { signal });
  assert.equal(t.sessions.length, 2);
  t.watches[0]?.write(line("MODIFIED", "still here"));
  assert.equal((await watch.next()).value?.object.metadata.name, "still here");
  await watch.return();
});

test("keeps open watches after a GOAWAY and opens new ones on another connection", async () => {
  await using t = await overHttp2();
  const first = await opened(t.client);
  t.sessions[0]?.goaway();
  await new Promise((resolve) => setImmediate(resolve));
  await t.client.get("/a", { signal });
  const second = await opened(t.client);
  assert.equal(t.sessions.length, 2);
  t.watches[0]?.write(line("MODIFIED", "still here"));
  assert.equal((await first.next()).value?.object.metadata.name, "still here");
  t.watches[0]?.end();
  assert.equal((await first.next()).done, true);
  await second.return();
});

test("a broken connection fails its watches, and the next watch reconnects", async () => {
  await using t = await overHttp2();
  const first = await opened(t.client);
  t.sessions[0]?.destroy();
  await assert.rejects(first.next(), { code: "unavailable" });
  const second = await opened(t.client);
  assert.equal(t.sessions.length, 2);
  await second.return();
});

test("a watch ends when its signal aborts; a refused watch fails with the server's message", async () => {
  await using t = await overHttp2();
  const stop = new AbortController();
  const events = await opened(t.client, stop.signal);
  const next = events.next();
  stop.abort();
  await assert.rejects(next, { code: "cancelled" });
  await assert.rejects(t.client.watch("/forbidden", { signal }).next(), { code: "permission_denied", message: "no" });
});

/** Forwards to a port until it is closed; after that it drops everything silently. */
async function openRelay() {
  let to = 0;
  const sockets: Socket[] = [];
  const relay = createTcpServer((near) => {
    const far = connect(to, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.push(one);
      one.on("error", () => other.destroy());
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => relay.listen(0, "127.0.0.1", resolve));
  return {
    port: (relay.address() as AddressInfo).port,
    leadTo: (port: number) => void (to = port),
    swallow() {
      for (const socket of sockets) socket.unpipe().resume();
    },
    async [Symbol.asyncDispose]() {
      relay.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

test("abandons dead connections of watches and calls, and reconnects", {
  timeout: 20_000,
}, async () => {
  const clock = systemClock();
  const hundredfold: Clock = { ...clock, after: (ms, fn) => clock.after(ms / 100, fn) };
  const relay = await openRelay();
  await using t = await overHttp2({ port: relay.port, clock: hundredfold });
  // Closing the server waits for its connections.
  await using _ = relay;
  relay.leadTo(t.port);
  const watch = await opened(t.client);
  const next = assert.rejects(watch.next(), { code: "unavailable" });
  const call = assert.rejects(t.client.get("/silent", { signal }), { code: "unavailable" });
  relay.swallow();
  await Promise.all([next, call]);
  assert.deepEqual(await t.client.get("/a", { signal }), { version: "2.0" });
  await (await opened(t.client)).return();
});

test("a truncated response is reported as unavailable", async () => {
  await using t = await overHttp((request, response) => {
    if (request.url === "/half") return void response.end('{"kind":"Pod","meta');
    response.writeHead(200, { "content-length": "100" }).write("{", () => response.destroy());
  });
  await assert.rejects(t.client.get("/half", { signal }), { code: "unavailable", message: /GET \/half is not JSON/ });
  await assert.rejects(t.client.get("/cut", { signal }), { code: "unavailable" });
});

test("an error about an unreadable response does not quote the response, which may contain secrets", async () => {
  await using t = await overHttp((_, response) => response.end('c2VjcmV0"}\n'));
  const silentOf = (error: unknown) => {
    assert.ok(error instanceof CodedError && error.code === "unavailable");
    assert.doesNotMatch(inspect(error, { depth: 9, showHidden: true }), /c2Vj/);
    return true;
  };
  await assert.rejects(t.client.get("/secret", { signal }), silentOf);
  await assert.rejects(t.client.watch("/secret", { signal }).next(), silentOf);
});

test("sends one write at a time while the server fails; heartbeats and reads are not throttled", async () => {
  let sick = true;
  let mangled = false;
  const asked: string[] = [];
  await using t = await overHttp((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    if (sick && request.method !== "GET") response.statusCode = 500;
    response.end(json({ kind: "Thing" }).slice(mangled ? 5 : 0));
  });
  const patch = (client: ApiClient, path: string) =>
    client.patch(path, { type: "merge", body: {} }, { signal }).catch(() => undefined);
  await patch(t.client, "/first");
  const held = Array.from({ length: 20 }, (_, index) => patch(t.client, `/${index}`));
  await t.client.get("/read", { signal });
  await patch(t.client.limited(undefined), "/heartbeat");
  assert.deepEqual(asked, ["PATCH /first", "GET /read", "PATCH /heartbeat"]);
  sick = false;
  await Promise.all(held);
  assert.equal(asked.length, 23);
  mangled = true;
  await patch(t.client, "/mangled");
  const again = [patch(t.client, "/a"), patch(t.client, "/b"), patch(t.client, "/c")];
  await t.client.get("/read", { signal }).catch(() => undefined);
  assert.deepEqual(asked.slice(23), ["PATCH /mangled", "GET /read"], "half an answer counts as a failure too");
  mangled = false;
  await Promise.all(again);
});
