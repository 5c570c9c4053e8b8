import type { Readable } from "node:stream";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import type { LimitErrorFactory } from "./limit-exceeded.ts";
import { type PeerChannel, type SshPeer, channelOpeners, openChannel } from "./ssh2-peer.ts";

/** Limits of a channel's window, bytes: the maximum, which channels get while there are few of them, and the minimum. */
const [maxWindow, minWindow] = [2 * 2 ** 20, 8 * 1024];
/** Limit of unread bytes over all channels of a connection, beyond the minimum window of each. */
const maxUnreadBytes = 32 * 2 ** 20;
/** A new channel's first window is its share divided by this number; the rest is granted as data is read. */
const initialDivisor = 8;
/** Buffered data is passed on in pieces of this size, so that a reader can pause in between. */
const pieceBytes = 64 * 1024;
const standardError = 1;
/** ssh2 keeps channels as properties of an object named by their IDs. With small IDs V8 converts that object between an array and a hash
 *  table: next to 2,000 open channels, each further one takes half a millisecond. From 2^29 on it is always a hash table. */
const firstChannelId = 2 ** 30;

/** Flow control of the channels of one connection. */
export type InboundWindows = ReturnType<typeof enforceWindows>;

/** Takes over flow control from ssh2, which announces 2 MiB to each channel and accepts more than it announced. Each channel's window is its
 *  share of the connection's limit, unread data is compacted into few blocks even if its packets are small, and a peer that sends
 *  more than its window allows loses the connection.
 *  @see RFC 4254 §5.2 */
export function enforceWindows(peer: SshPeer, exceeded: LimitErrorFactory) {
  const flows = new ConnectionFlows(peer, exceeded);
  const { protocol, channels } = peer;
  channels._cur = firstChannelId;
  const { _handlers: handlers } = protocol;
  for (const name of channelOpeners) {
    const open = protocol[name].bind(protocol);
    protocol[name] = (id, _window, ...rest) => open(id, flows.open(id), ...rest);
  }
  const confirm = protocol.channelOpenConfirm.bind(protocol);
  protocol.channelOpenConfirm = (peersId, id, _window, longestPacket) =>
    confirm(peersId, id, flows.open(id), longestPacket);
  const { CHANNEL_OPEN_FAILURE: fail, CHANNEL_EOF: end, CHANNEL_CLOSE: close } = handlers;
  handlers.CHANNEL_DATA = (_protocol, id, data) => flows.receive(id, data, "stdout");
  handlers.CHANNEL_EXTENDED_DATA = (_protocol, id, data, type) =>
    flows.receive(id, data, type === standardError ? "stderr" : "dropped");
  handlers.CHANNEL_OPEN_FAILURE = (of, id, ...rest) => {
    flows.close(id);
    fail(of, id, ...rest);
  };
  handlers.CHANNEL_EOF = (of, id) => {
    flows.flush(id);
    end(of, id);
  };
  handlers.CHANNEL_CLOSE = (of, id) => {
    flows.flush(id);
    flows.close(id, openChannel(channels.get(id)));
    close(of, id);
  };
  rejectUnhandledChannels(peer);
  return {
    /** Number of channels that are open, or closed but not yet read to the end. */
    channels: () => flows.size,
  };
}

/** Reason code for refusing a channel: administratively prohibited (RFC 4254 §5.1). */
const prohibited = 1;

/** Refuses channels that no handler has accepted or refused, for example for a socket that graftlet no longer listens on: ssh2 would keep
 *  them open. */
function rejectUnhandledChannels({ protocol, channels }: SshPeer): void {
  const { _handlers: handlers } = protocol;
  const { CHANNEL_OPEN: open } = handlers;
  handlers.CHANNEL_OPEN = (of, info) => {
    const before = channels._cur;
    open(of, info);
    const id = channels._cur;
    if (id === before || channels.get(id) !== true) return;
    channels.remove(id);
    protocol.channelOpenFail(info.sender, prohibited, "");
  };
}

class ConnectionFlows {
  readonly #peer: SshPeer;
  readonly #exceeded: LimitErrorFactory;
  readonly #flows = new Map<number, ChannelFlow>();
  #unread = 0;

  constructor(peer: SshPeer, exceeded: LimitErrorFactory) {
    this.#peer = peer;
    this.#exceeded = exceeded;
  }

  get size(): number {
    return this.#flows.size;
  }

  /** Registers a new channel. @returns its first window. */
  open(id: number): number {
    const flow = new ChannelFlow();
    this.#flows.set(id, flow);
    flow.window = Math.max(minWindow, Math.floor(this.#share() / initialDivisor));
    return flow.window;
  }

  receive(id: number, data: Buffer, to: "stdout" | "stderr" | "dropped"): void {
    const [channel, flow] = [openChannel(this.#peer.channels.get(id)), this.#flows.get(id)];
    if (!channel || !flow) return;
    if (data.length > flow.window)
      throw this.#exceeded(`sent ${data.length} bytes on a channel with a window of ${flow.window}`);
    flow.window -= data.length;
    this.#bufferOf(flow, channel, to)?.receive(data);
    this.#adjustWindow(flow, channel);
  }

  flush(id: number): void {
    const flow = this.#flows.get(id);
    if (!flow) return;
    for (const outlet of flow.buffers()) outlet.flush();
    this.#countUnread(flow);
  }

  /** Stops the flow control of a closed channel. @param channel given if its unread data still has to be read. */
  close(id: number, channel?: PeerChannel): void {
    const flow = this.#flows.get(id);
    if (!flow) return;
    flow.window = 0;
    const forget = () => {
      this.#flows.delete(id);
      this.#unread -= flow.counted;
      flow.counted = 0;
    };
    if (channel) channel.once("close", forget);
    else forget();
  }

  #bufferOf(flow: ChannelFlow, channel: PeerChannel, to: "stdout" | "stderr" | "dropped"): StreamBuffer | undefined {
    if (to === "dropped") return undefined;
    const stream = to === "stdout" ? channel : channel.stderr;
    if (!("push" in stream)) return undefined;
    return (flow[to] ??= new StreamBuffer(stream, () => this.#adjustWindow(flow, channel)));
  }

  #share(): number {
    return Math.min(maxWindow, Math.max(minWindow, Math.floor(maxUnreadBytes / Math.max(1, this.size))));
  }

  #countUnread(flow: ChannelFlow): void {
    const unread = flow.unread();
    this.#unread += unread - flow.counted;
    flow.counted = unread;
  }

  /** Counts unread data, and grants the peer a larger window once it has used half of it. */
  #adjustWindow(flow: ChannelFlow, { incoming, outgoing }: PeerChannel): void {
    this.#countUnread(flow);
    if (incoming.state !== "open" || outgoing.state === "closed" || !this.#peer.protocol._destruct) return;
    const share = this.#share();
    if (flow.window > share / 2) return;
    const own = flow.window + flow.counted;
    const grant = Math.min(share - own, Math.max(maxUnreadBytes - this.#unread, minWindow - own));
    if (grant < minWindow / 2) return;
    flow.window += grant;
    this.#peer.protocol.channelWindowAdjust(outgoing.id, grant);
  }
}

/** Flow-control state of one channel. */
class ChannelFlow {
  /** Bytes that the peer may still send. */
  window = 0;
  /** Unread bytes that are included in the connection's total. */
  counted = 0;
  stdout: StreamBuffer | undefined;
  stderr: StreamBuffer | undefined;

  buffers(): readonly StreamBuffer[] {
    return [this.stdout, this.stderr].filter((outlet) => outlet !== undefined);
  }

  unread(): number {
    return this.buffers().reduce((sum, outlet) => sum + outlet.unread, 0);
  }
}

/** Passes data on to one stream of a channel, and buffers it while the stream's reader has paused. */
class StreamBuffer {
  readonly #stream: Readable;
  readonly #buffered = new BoundedBuffer(maxWindow);
  /** Buffered data that is being passed on. */
  #rest: Buffer = Buffer.alloc(0);
  /** Size of the data on which the reader has paused, bytes; it still counts as unread. */
  #pausedOn = 0;

  constructor(stream: Readable, onRead: () => void) {
    this.#stream = stream;
    stream.on("resume", () => {
      this.#pausedOn = 0;
      while (this.#stream.readableFlowing && this.#hasBuffered()) this.#push(this.#next());
      onRead();
    });
  }

  get unread(): number {
    return this.#rest.length + this.#buffered.length + this.#pausedOn;
  }

  receive(data: Buffer): void {
    if (this.#stream.readableFlowing && !this.#hasBuffered()) this.#push(data);
    else this.#buffered.add(data);
  }

  /** Passes on all data, even if the reader has paused, because the stream is about to end. */
  flush(): void {
    while (this.#hasBuffered()) {
      const piece = this.#next();
      this.#pausedOn += piece.length;
      this.#stream.push(piece);
    }
  }

  #hasBuffered(): boolean {
    return this.#rest.length + this.#buffered.length > 0;
  }

  #next(): Buffer {
    if (this.#rest.length === 0) this.#rest = this.#buffered.take();
    const piece = this.#rest.subarray(0, pieceBytes);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  #push(data: Buffer): void {
    this.#stream.push(data);
    this.#pausedOn = this.#stream.readableFlowing ? 0 : data.length;
  }
}
