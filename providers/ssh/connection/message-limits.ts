import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";
import type { LimitExceeded } from "./limit-exceeded.ts";
import { type SshPeer, clipped } from "./ssh2-peer.ts";

/** Numbers of messages. @see RFC 4250 §4.1.2 */
const message = {
  serviceRequest: 5,
  serviceAccept: 6,
  kexInit: 20,
  firstOfLogin: 50,
  lastOfLogin: 79,
  globalRequest: 80,
  channelOpen: 90,
  channelData: 94,
  channelExtendedData: 95,
} as const;

/** Messages before the login is done: the answer to each key that is tried, banners. */
const messagesBeforeLogin = 100;
/** Messages other than data, a second and at once. OpenSSH adjusts a window every 96 KiB: 10,000 times in 1 GB. */
const [controlRate, controlBurst] = [20_000, 40_000];
/** Channels that the peer opens, a second and at once. */
const [openRate, openBurst] = [2_000, 5_000];
/** Key exchanges that the peer begins, a second and at once. OpenSSH begins one after each GiB, or as RekeyLimit says. */
const [exchangeRate, exchangeBurst] = [2, 20];
/** Short data messages, a second and at once; a peer that sends more is read later. */
const [shortRate, shortBurst] = [50_000, 50_000];
const shortBytes = 128;
const laterMs = 10;
/** Bytes that wait for the peer to read them. While there are more it is not read either: its requests would add answers. */
const mostUnsent = 2 * 2 ** 20;

const hostKeysRequest = Buffer.from("hostkeys-00@openssh.com");

/** Limits what the messages of a server cost that graftlet has connected to: how many there are, beside the data of channels, which
 *  enforceWindows limits, and how long their texts are. */
export function limitMessages(
  peer: SshPeer,
  clock: Pick<Clock, "monotonic" | "after">,
  exceeded: LimitExceeded,
): void {
  const { protocol, socket } = peer;
  const mayControl = createTokenBucket(clock, controlRate, controlBurst);
  const mayOpen = createTokenBucket(clock, openRate, openBurst);
  const mayExchange = createTokenBucket(clock, exchangeRate, exchangeBurst);
  const mayBeShort = createTokenBucket(clock, shortRate, shortBurst);
  let beforeLogin = 0;
  let paused = false;
  const readLater = () => {
    if (paused) return;
    paused = true;
    socket.pause();
    const look = () => {
      if (socket.writableLength > mostUnsent && !socket.destroyed) return void clock.after(laterMs, look);
      paused = false;
      socket.resume();
    };
    clock.after(laterMs, look);
  };
  const examine = (type: number, length: number): void => {
    if (!protocol._authenticated && (beforeLogin += 1) > messagesBeforeLogin)
      throw exceeded(`sent more than ${messagesBeforeLogin} messages before the login was done`);
    if (protocol._authenticated && isOfLogin(type)) throw exceeded("asked for a login again after the login was done");
    if (isData(type) && length > dataHead) {
      if (length < shortBytes && !mayBeShort()) readLater();
      return;
    }
    if (!mayControl()) throw exceeded(`sent more than ${controlRate} messages a second that are not data`);
    if (type === message.channelOpen && !mayOpen()) throw exceeded(`opened more than ${openRate} channels a second`);
    if (type === message.kexInit && !mayExchange())
      throw exceeded(`asked for more than ${exchangeRate} key exchanges a second`);
    if (socket.writableLength > mostUnsent) readLater();
  };
  const handle = protocol._onPayload;
  protocol._onPayload = (payload) => {
    examine(payload[0] ?? 0, payload.length);
    // ssh2 would have the server prove each key; graftlet knows its host keys from its configuration.
    return isHostKeys(payload) ? undefined : handle(payload);
  };
  clipTexts(peer);
}

/** Bytes of a data message before its data. */
const dataHead = 9;

function isData(type: number): boolean {
  return type === message.channelData || type === message.channelExtendedData;
}

function isOfLogin(type: number): boolean {
  // The message that ends the login comes when it counts as done already.
  if (type === loginDone) return false;
  return (
    type === message.serviceRequest ||
    type === message.serviceAccept ||
    (type >= message.firstOfLogin && type <= message.lastOfLogin)
  );
}

const loginDone = 52;

function isHostKeys(payload: Buffer): boolean {
  const start = 5;
  return (
    payload[0] === message.globalRequest &&
    payload.subarray(start, start + hostKeysRequest.length).equals(hostKeysRequest)
  );
}

/** Reasons that the peer gives go into conditions, events and the log. */
function clipTexts({ protocol: { _handlers: handlers } }: SshPeer): void {
  const { DISCONNECT: disconnect, CHANNEL_OPEN_FAILURE: refuse } = handlers;
  handlers.DISCONNECT = (of, reason, text) => disconnect(of, reason, clipped(text ?? ""));
  handlers.CHANNEL_OPEN_FAILURE = (of, id, reason, text) => refuse(of, id, reason, clipped(text ?? ""));
}
