import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { WebSocket } from "ws";
import { encodeMessage } from "../../../src/remotedialer/messages.ts";
import { serveSession } from "../../../src/remotedialer/tunnels.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("does not open connections requested after the session has ended", async () => {
  const socket = Object.assign(new EventEmitter(), {
    readyState: 1,
    OPEN: 1,
    bufferedAmount: 0,
    send: () => undefined,
    ping: () => undefined,
    // The library emits messages already read even after this.
    terminate: () => undefined,
  });
  const dialled: string[] = [];
  const resolveTarget = (_protocol: string, address: string) => void dialled.push(address);
  const stop = new AbortController();
  const session = serveSession(socket as unknown as WebSocket, { resolveTarget, clock: fakeClock() }, stop.signal);
  const dial = (connection: bigint, address: string) =>
    socket.emit("message", Buffer.from(encodeMessage({ kind: "connect", connection, protocol: "tcp", address }, 1n)));
  dial(1n, "in time");
  stop.abort();
  dial(2n, "too late");
  await session;
  dial(3n, "much too late");
  assert.deepEqual(dialled, ["in time"]);
});
