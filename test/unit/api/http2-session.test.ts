import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { pingSession, widenWindow } from "../../../src/api/http2-session.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("does not ping a session that has been destroyed since the previous ping", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await once(session, "connect");
  const clock = fakeClock();
  const silent: unknown[] = [];
  pingSession(session, {
    clock,
    pingIntervalMs: 1_000,
    pingTimeoutMs: 500,
    onPingTimeout: () => void silent.push("silent"),
  });
  session.destroy();
  await assert.doesNotReject(clock.advance(2_000));
  assert.deepEqual(silent, []);
  server.close();
});

test("a session that breaks before it is known to be connected raises no error", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.once("connect", () => session.destroy());
  widenWindow(session);
  await once(session, "close");
  server.close();
});
