import assert from "node:assert/strict";
import { once } from "node:events";
import { createSecureServer, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import type { Credentials } from "../../../src/api/credentials.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { createRequests } from "../../../src/api/requests.ts";
import { createHttp2Sessions } from "../../../src/api/http2-sessions.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";

test("requests, watches and closing do not block on a connection that is never established", async (t) => {
  // Accepts connections without a TLS handshake.
  const server = createServer((socket) => t.after(() => socket.destroy())).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const url = new URL(`https://127.0.0.1:${port}`);
  const credentials: Credentials = {
    server: url,
    proxy: undefined,
    tls: { rejectUnauthorized: false },
    generation: 1,
    headers: {},
  };
  const requests = createRequests();
  const sessions = createHttp2Sessions({ clock: systemClock(), http1: requests });
  const stop = new AbortController();
  const request = { method: "GET", path: "/", headers: {}, signal: stop.signal } as const;
  const began = performance.now();
  const sent = assert.rejects(requests.send(credentials, request), { code: "cancelled" });
  const watched = assert.rejects(sessions.watch(credentials, request), { code: "cancelled" });
  await once(server, "connection");
  stop.abort(new CodedError("cancelled", "stopped"));
  await Promise.all([sent, watched]);
  await sessions[Symbol.asyncDispose]();
  await requests[Symbol.asyncDispose]();
  assert.ok(performance.now() - began < 5_000);
});

test("new credentials end the watches of the old ones, and let calls under way finish", async (t) => {
  const { certificate: cert, key } = await makeSelfSigned("localhost", ["127.0.0.1"], Date.now());
  const server = createSecureServer({ cert, key }).listen(0, "127.0.0.1");
  t.after(() => server.close());
  const asked = new Map<string, ServerHttp2Stream>();
  server.on("stream", (stream: ServerHttp2Stream, headers) => {
    stream.on("error", () => undefined);
    asked.set(String(headers[":path"]), stream);
    if (headers[":path"] !== "/slow") stream.respond({ ":status": 200 });
    if (headers[":path"] === "/quick") stream.end("quick");
  });
  await once(server, "listening");
  const url = new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const tls = { ca: Buffer.from(cert), servername: "localhost", rejectUnauthorized: true };
  const old: Credentials = { server: url, proxy: undefined, tls, generation: 1, headers: {} };
  const requests = createRequests();
  const sessions = createHttp2Sessions({ clock: systemClock(), http1: requests });
  const get = (path: string) => ({ method: "GET", path, headers: {} }) as const;
  const watch = await sessions.watch(old, get("/watch"));
  const slow = sessions.send(old, get("/slow"));
  await once(server, "stream");
  const read = watch.body.toArray();
  await sessions.send({ ...old, generation: 2 }, get("/quick"));
  assert.deepEqual(await read, []);
  assert.equal(watch.cut?.(), false);
  asked.get("/slow")?.respond({ ":status": 201 });
  asked.get("/slow")?.end("done");
  const { status, body, cut } = await slow;
  assert.deepEqual([status, (await body.toArray()).join(""), cut?.()], [201, "done", false]);
  await sessions[Symbol.asyncDispose]();
  await requests[Symbol.asyncDispose]();
});
