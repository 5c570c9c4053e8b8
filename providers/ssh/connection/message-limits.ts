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
  channelOpenConfirmation: 91,
  windowAdjust: 93,
  channelData: 94,
  channelExtendedData: 95,
} as const;

/** Messages before the login is done: the answer to each key that is tried, banners. */
const messagesBeforeLogin = 100;
/** Messages that are none of those below, a second and at once: requests, answers, ends of channels. Each costs up to 50 µs. */
const [controlRate, controlBurst] = [5_000, 10_000];
/** Key exchanges that the peer begins, a second and at once. OpenSSH begins one after each GiB, or as RekeyLimit says. */
const [exchangeRate, exchangeBurst] = [2, 20];
/** Channels that the peer opens, a second and at once. A peer that opens more is read later, as pods may cause it; for so long, milliseconds. */
const [openRate, openBurst] = [1_000, 2_000];
const longestDebtMs = 2_000;
/** Short data and adjusted windows, a second and at once; beyond that the peer is read later. OpenSSH adjusts a window every 96 KiB. */
const [shortRate, shortBurst] = [20_000, 20_000];
const shortBytes = 128;
/** How often a peer that is read later is looked at, milliseconds. */
const laterMs = 10;
/** Bytes that wait for the peer to read them. While there are more it is not read either: its requests would add answers. */
const mostUnsent = 2 * 2 ** 20;

/** The smallest packets that a peer may ask for, bytes: ssh2 sends data in such pieces at once, and without end where they have 0. */
const smallestPacket = 1024;

const hostKeysRequest = Buffer.from("hostkeys-00@openssh.com");

/** Limits what a peer's messages cost: how many there are, beside the data of channels, which enforceWindows limits, and how long their
 *  texts are. */
export function limitMessages(peer: SshPeer, clock: Pick<Clock, "monotonic" | "after">, exceeded: LimitExceeded): void {
  const { protocol, socket } = peer;
  const mayControl = createTokenBucket(clock, controlRate, controlBurst);
  const mayExchange = createTokenBucket(clock, exchangeRate, exchangeBurst);
  const debtOfOpens = createDebt(clock, openRate, openBurst);
  const debtOfShort = createDebt(clock, shortRate, shortBurst);
  let beforeLogin = 0;
  const { readLater } = createPauses(peer, clock);
  const examine = (type: number, length: number): void => {
    if (!protocol._authenticated && (beforeLogin += 1) > messagesBeforeLogin)
      throw exceeded(`sent more than ${messagesBeforeLogin} messages before the login was done`);
    if (protocol._authenticated && isOfLogin(type)) throw exceeded("asked for a login again after the login was done");
    if (isData(type) && length > dataHead) return length < shortBytes ? readLater(debtOfShort.take()) : undefined;
    if (type === message.windowAdjust) return readLater(debtOfShort.take());
    if (socket.writableLength > mostUnsent) readLater(laterMs);
    if (type === message.channelOpen) {
      readLater(debtOfOpens.take());
      if (debtOfOpens.lasts() > longestDebtMs)
        throw exceeded(`opened more than ${openRate} channels a second for ${longestDebtMs / 1000} seconds`);
      return;
    }
    // ssh2 does not show the first one here.
    if (type === message.kexInit && !protocol._authenticated)
      throw exceeded("asked for a second key exchange before the login was done");
    if (type === message.kexInit && !mayExchange())
      throw exceeded(`asked for more than ${exchangeRate} key exchanges a second`);
    if (!mayControl()) throw exceeded(`sent more than ${controlRate} messages a second that are not data`);
  };
  const handle = protocol._onPayload;
  protocol._onPayload = (payload) => {
    examine(payload[0] ?? 0, payload.length);
    const packet = longestPacketOf(payload);
    if (packet < smallestPacket) throw exceeded(`asked for packets of ${packet} bytes`);
    // ssh2 would have the server prove each key; graftlet knows its host keys from its configuration.
    return isHostKeys(payload) ? undefined : handle(payload);
  };
  clipTexts(peer);
}

/** A token bucket that can be overdrawn. */
interface Debt {
  /** Takes a token. @returns milliseconds until none is owed. */
  take(): number;
  /** Milliseconds for which tokens have been owed, again and again. */
  lasts(): number;
}

function createDebt(clock: Pick<Clock, "monotonic">, perSecond: number, burst: number): Debt {
  let tokens = burst;
  let filledAt = clock.monotonic();
  let since: number | undefined;
  return {
    take() {
      const now = clock.monotonic();
      tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond) - 1;
      filledAt = now;
      if (tokens > burst / 10) since = undefined;
      if (tokens >= 0) return 0;
      since ??= now;
      return (-tokens / perSecond) * 1000;
    },
    lasts: () => (since === undefined ? 0 : clock.monotonic() - since),
  };
}

/** Stops reading from a peer for a while. */
function createPauses({ socket }: SshPeer, clock: Pick<Clock, "monotonic" | "after">): { readLater(ms: number): void } {
  let until: number | undefined;
  const look = () => {
    const isEarly = until !== undefined && clock.monotonic() < until;
    if (!socket.destroyed && (isEarly || socket.writableLength > mostUnsent)) return void clock.after(laterMs, look);
    until = undefined;
    socket.resume();
  };
  return {
    readLater(ms) {
      if (ms <= 0) return;
      const isPaused = until !== undefined;
      until = Math.max(until ?? 0, clock.monotonic() + ms);
      if (isPaused) return;
      socket.pause();
      clock.after(laterMs, look);
    },
  };
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

/** The longest packets that the peer takes on a channel that is opened; Infinity in other messages. @see RFC 4254 §5.1 */
function longestPacketOf(payload: Buffer): number {
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

/** Reasons that the peer gives go into conditions, events and the log. */
function clipTexts({ protocol: { _handlers: handlers } }: SshPeer): void {
  const { DISCONNECT: disconnect, CHANNEL_OPEN_FAILURE: refuse } = handlers;
  handlers.DISCONNECT = (of, reason, text) => disconnect(of, reason, clipped(text ?? ""));
  handlers.CHANNEL_OPEN_FAILURE = (of, id, reason, text) => refuse(of, id, reason, clipped(text ?? ""));
}
