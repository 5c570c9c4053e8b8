import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";
import type { LimitErrorFactory } from "./limit-exceeded.ts";
import { type SshPeer, clipText } from "./ssh2-peer.ts";

/** SSH message numbers. @see RFC 4250 §4.1.2 */
const message = {
  serviceRequest: 5,
  serviceAccept: 6,
  kexInit: 20,
  firstOfLogin: 50,
  lastOfLogin: 79,
  globalRequest: 80,
  channelOpen: 90,
  channelOpenConfirmation: 91,
  windowAdjust: 93,
  channelData: 94,
  channelExtendedData: 95,
  channelEof: 96,
  channelClose: 97,
} as const;

/** Limit of messages before the login is complete: an answer for each key that is tried, and banners. */
const messagesBeforeLogin = 100;
/** Rate per second and burst of control messages (requests, answers). Each costs up to 50 µs. */
const [controlRate, controlBurst] = [5_000, 10_000];
/** Rate per second and burst of key exchanges that the peer starts. OpenSSH starts one after each GiB, or as set by
 *  RekeyLimit. */
const [exchangeRate, exchangeBurst] = [2, 20];
/** Rates per second and bursts of channels that the peer opens, and of ends of channels (EOF, close). Beyond them, reading from
 *  the peer is paused and the connection is kept: pods cause both by connecting to sockets that graftlet listens on, and an
 *  honest sshd forwards as many connections as pods open. */
const [openRate, openBurst] = [2_000, 2_000];
const [endRate, endBurst] = [5_000, 10_000];
/** Rate per second and burst of channels for sockets that graftlet does not listen on. Beyond that, the connection is closed. An
 *  honest sshd only opens such channels if they were in transit when graftlet closed a socket; the limit of its open files (1,024
 *  by default) limits their number. */
const [unexpectedRate, unexpectedBurst] = [100, 5_000];
/** Rate per second and burst of short data messages and window adjustments; beyond that, reading is paused. OpenSSH adjusts a
 *  window every 96 KiB. */
const [shortRate, shortBurst] = [20_000, 20_000];
const shortBytes = 128;
/** Interval for checking whether reading from a paused peer can resume, milliseconds. */
const pauseMs = 10;
/** Limit of unsent bytes. Beyond it, reading from the peer is paused as well: answers to its requests would add to them. */
const maxUnsentBytes = 2 * 2 ** 20;

/** Minimum for the maximum packet size that a peer announces, bytes: ssh2 would split data into packets of that size all at once, and loop
 *  forever for 0. */
const minPacketBytes = 1024;

const hostKeysRequest = Buffer.from("hostkeys-00@openssh.com");

/** Limits the cost of a peer's messages: their rate (channel data is limited by `enforceWindows`) and the length of their texts. */
export function limitMessages(
  peer: SshPeer,
  clock: Pick<Clock, "monotonic" | "after">,
  exceeded: LimitErrorFactory,
): void {
  const { protocol, socket } = peer;
  const mayControl = createTokenBucket(clock, controlRate, controlBurst);
  const mayExchange = createTokenBucket(clock, exchangeRate, exchangeBurst);
  const channelOpens = createOverdraftBucket(clock, openRate, openBurst);
  const channelEnds = createOverdraftBucket(clock, endRate, endBurst);
  const shortMessages = createOverdraftBucket(clock, shortRate, shortBurst);
  let beforeLogin = 0;
  const { pauseReading } = createReadPauses(peer, clock);
  const examine = (type: number, length: number): void => {
    if (!protocol._authenticated && (beforeLogin += 1) > messagesBeforeLogin)
      throw exceeded(`sent more than ${messagesBeforeLogin} messages before completing the login`);
    if (protocol._authenticated && isLoginMessage(type))
      throw exceeded("requested another login after completing the login");
    if (isData(type) && length > dataHeaderBytes)
      return length < shortBytes ? pauseReading(shortMessages()) : undefined;
    if (type === message.windowAdjust) return pauseReading(shortMessages());
    if (socket.writableLength > maxUnsentBytes) pauseReading(pauseMs);
    if (type === message.channelOpen) return pauseReading(channelOpens());
    if (type === message.channelEof || type === message.channelClose) return pauseReading(channelEnds());
    // ssh2 does not pass the first KEXINIT to this function.
    if (type === message.kexInit && !protocol._authenticated)
      throw exceeded("requested a second key exchange before completing the login");
    if (type === message.kexInit && !mayExchange())
      throw exceeded(`requested more than ${exchangeRate} key exchanges per second`);
    if (!mayControl()) throw exceeded(`sent more than ${controlRate} control messages per second`);
  };
  const handle = protocol._onPayload;
  protocol._onPayload = (payload) => {
    examine(payload[0] ?? 0, payload.length);
    const packet = maxPacketOf(payload);
    if (packet < minPacketBytes) throw exceeded(`announced a maximum packet size of ${packet} bytes`);
    // ssh2 would ask the server to prove each key; graftlet takes host keys only from its configuration.
    return isHostKeys(payload) ? undefined : handle(payload);
  };
  limitUnexpectedChannels(peer, clock, exceeded);
  clipTexts(peer);
}

/** Reason codes with which ssh2 and `enforceWindows` refuse a channel that graftlet does not expect. @see RFC 4254 §5.1 */
const [prohibited, unknownType] = [1, 3];

/** Limits the number of refused channels that graftlet does not expect. A listener that is full refuses channels with other
 *  reason codes. */
function limitUnexpectedChannels(
  { protocol }: SshPeer,
  clock: Pick<Clock, "monotonic">,
  exceeded: LimitErrorFactory,
): void {
  const mayOpen = createTokenBucket(clock, unexpectedRate, unexpectedBurst);
  const refuse = protocol.channelOpenFail.bind(protocol);
  protocol.channelOpenFail = (peersId, reason, text) => {
    if ((reason === prohibited || reason === unknownType) && !mayOpen())
      throw exceeded(`opened more than ${unexpectedBurst} channels that graftlet does not expect`);
    refuse(peersId, reason, text);
  };
}

/** Creates a token bucket that can be overdrawn.
 *  @returns a function that takes a token and returns the time until the bucket is no longer overdrawn, milliseconds. */
function createOverdraftBucket(clock: Pick<Clock, "monotonic">, perSecond: number, burst: number): () => number {
  let tokens = burst;
  let filledAt = clock.monotonic();
  return () => {
    const now = clock.monotonic();
    tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond) - 1;
    filledAt = now;
    return Math.max(0, (-tokens / perSecond) * 1000);
  };
}

function createReadPauses(
  { socket }: SshPeer,
  clock: Pick<Clock, "monotonic" | "after">,
): { pauseReading(ms: number): void } {
  let until: number | undefined;
  const tryResume = () => {
    const isEarly = until !== undefined && clock.monotonic() < until;
    if (!socket.destroyed && (isEarly || socket.writableLength > maxUnsentBytes))
      return void clock.after(pauseMs, tryResume);
    until = undefined;
    socket.resume();
  };
  return {
    pauseReading(ms) {
      if (ms <= 0) return;
      const isPaused = until !== undefined;
      until = Math.max(until ?? 0, clock.monotonic() + ms);
      if (isPaused) return;
      socket.pause();
      clock.after(pauseMs, tryResume);
    },
  };
}

const dataHeaderBytes = 9;

function isData(type: number): boolean {
  return type === message.channelData || type === message.channelExtendedData;
}

function isLoginMessage(type: number): boolean {
  // ssh2 marks the login as complete before it passes USERAUTH_SUCCESS on, so this message does not count.
  if (type === loginDone) return false;
  return (
    type === message.serviceRequest ||
    type === message.serviceAccept ||
    (type >= message.firstOfLogin && type <= message.lastOfLogin)
  );
}

const loginDone = 52;

/** Returns the maximum packet size announced when a channel is opened; Infinity for other messages. @see RFC 4254 §5.1 */
function maxPacketOf(payload: Buffer): number {
  if (payload[0] === message.channelOpenConfirmation && payload.length >= 17) return payload.readUInt32BE(13);
  if (payload[0] !== message.channelOpen || payload.length < 5) return Number.POSITIVE_INFINITY;
  const at = 5 + payload.readUInt32BE(1) + 8;
  return payload.length >= at + 4 ? payload.readUInt32BE(at) : Number.POSITIVE_INFINITY;
}

function isHostKeys(payload: Buffer): boolean {
  const start = 5;
  return (
    payload[0] === message.globalRequest &&
    payload.subarray(start, start + hostKeysRequest.length).equals(hostKeysRequest)
  );
}

/** Clips the peer's texts, which end up in conditions, events and the log. */
function clipTexts({ protocol: { _handlers: handlers } }: SshPeer): void {
  const { DISCONNECT: disconnect, CHANNEL_OPEN_FAILURE: refuse } = handlers;
  handlers.DISCONNECT = (of, reason, text) => disconnect(of, reason, clipText(text ?? ""));
  handlers.CHANNEL_OPEN_FAILURE = (of, id, reason, text) => refuse(of, id, reason, clipText(text ?? ""));
}
