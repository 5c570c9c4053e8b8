import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import type { Credentials } from "../../../src/api/credentials.ts";
import { createRequests } from "../../../src/api/requests.ts";
import { createWatchSessions } from "../../../src/api/watch-sessions.ts";
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
  const sessions = createWatchSessions({ clock: systemClock(), http1: requests });
  const stop = new AbortController();
  const request = { method: "GET", path: "/", headers: {}, signal: stop.signal } as const;
  const began = performance.now();
  const sent = assert.rejects(requests.send(credentials, request), { code: "cancelled" });
  const watched = assert.rejects(sessions.open(credentials, request), { code: "cancelled" });
  await once(server, "connection");
  stop.abort(new CodedError("cancelled", "stopped"));
  await Promise.all([sent, watched]);
  await sessions[Symbol.asyncDispose]();
  await requests[Symbol.asyncDispose]();
  assert.ok(performance.now() - began < 5_000);
});
