import assert from "node:assert/strict";
import { test } from "node:test";
import { limitMessages } from "../../../../../providers/ssh/connection/message-limits.ts";
import type { SshPeer } from "../../../../../providers/ssh/connection/ssh2-peer.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

const channelEof = Buffer.from([96, 0, 0, 0, 1]);
const channelClose = Buffer.from([97, 0, 0, 0, 1]);
const request = Buffer.from([80, 0, 0, 0, 1, 120, 1]);

function channelOpen(): Buffer {
  const type = Buffer.from("forwarded-streamlocal@openssh.com");
  const payload = Buffer.alloc(5 + type.length + 12);
  payload[0] = 90;
  payload.writeUInt32BE(type.length, 1);
  type.copy(payload, 5);
  payload.writeUInt32BE(32_768, 5 + type.length + 8);
  return payload;
}

/** A peer that has logged in. Its messages are counted once they are read. */
function limitedPeer() {
  const clock = fakeClock();
  let read = 0;
  const protocol = {
    _authenticated: true,
    _handlers: {},
    _onPayload: () => void (read += 1),
    channelOpenFail: () => undefined,
  };
  const socket = {
    destroyed: false,
    writableLength: 0,
    paused: false,
    pause: () => void (socket.paused = true),
    resume: () => void (socket.paused = false),
  };
  limitMessages({ protocol, socket } as unknown as SshPeer, clock, (what) => new Error(what) as never);
  const { _onPayload: receive } = protocol as unknown as SshPeer["protocol"];
  /** Offers messages at a rate, which wait while reading is paused. @returns the number of messages read. */
  const offer = async (messages: readonly Buffer[], perSecond: number, seconds: number): Promise<number> => {
    let waiting = 0;
    for (let ms = 0; ms < seconds * 1000; ms += 10) {
      waiting += perSecond / 100;
      while (waiting >= 1 && !socket.paused) {
        for (const message of messages) receive(message);
        waiting -= 1;
      }
      await clock.advance(10);
    }
    return read / messages.length;
  };
  return { protocol: protocol as unknown as SshPeer["protocol"], offer };
}

test("five thousand pod connections per second are read more slowly, but do not break the SSH connection", async () => {
  const read = await limitedPeer().offer([channelOpen(), channelEof, channelClose], 5_000, 20);
  assert.ok(read > 35_000 && read < 43_000, `${read} were read in 20 s`);
});

test("more requests than the limit break the connection", async () => {
  await assert.rejects(limitedPeer().offer([request], 8_000, 10), /more than 5000 control messages per second/);
});

test("unexpected channels break the connection; channels that a full listener refuses do not", () => {
  const refuse = (reason: number) => {
    const { protocol } = limitedPeer();
    for (let count = 0; count <= 5_000; count += 1) protocol.channelOpenFail(count, reason, "");
  };
  for (const reason of [1, 3]) assert.throws(() => refuse(reason), /more than 5000 channels that graftlet does not/);
  for (const reason of [2, 4]) refuse(reason);
});
