import { type Duplex } from "node:stream";
import { constants, createDeflate, createInflate } from "node:zlib";
import { dictionary } from "../../src/streams/spdy/header-block.ts";

/** A frame as it came. */
export interface RawFrame {
  /** 0 for data. */
  readonly type: number;
  readonly flags: number;
  /** The stream of a data frame; of a control frame, its first four bytes. */
  readonly id: number;
  readonly payload: Buffer;
}

/** A stream as its client sees it. */
export interface ClientStream {
  readonly id: number;
  write(data: Buffer | string): Promise<void>;
  end(): Promise<void>;
  reset(): Promise<void>;
  /** Everything until the server's end of the stream, a reset or the end of the connection. */
  readonly text: Promise<string>;
  readonly isReset: () => boolean;
  /** Called with data in place of its being kept. */
  onData?: (data: Buffer) => void;
}

export interface SpdyClient {
  /** Opens a stream; resolves with the server's reply, rejects when the stream is refused. */
  open(headers: Readonly<Record<string, string>>): Promise<ClientStream>;
  /** Sends bytes as they are. */
  raw(...parts: readonly Buffer[]): Promise<void>;
  readonly frames: RawFrame[];
  /** Reads no more, until `resume`. */
  pause(): void;
  resume(): void;
  /** Resolves when the connection has ended or broken. */
  readonly closed: Promise<void>;
  readonly socket: Duplex;
}

export function dataFrame(id: number, data: Buffer, flags = 0): Buffer {
  return Buffer.concat([words(id, (flags << 24) | data.length), data]);
}

export function controlFrame(type: number, payload: Buffer, flags = 0, version = 3): Buffer {
  return Buffer.concat([words((0x8000 << 16) | (version << 16) | type, (flags << 24) | payload.length), payload]);
}

export function words(...values: readonly number[]): Buffer {
  return Buffer.concat(
    values.map((value) => {
      const word = Buffer.alloc(4);
      word.writeInt32BE(value | 0);
      return word;
    }),
  );
}

/** A compressor of header blocks that flushes as Go's client does. */
export function headerCompressor(): (headers: Readonly<Record<string, string>>) => Promise<Buffer> {
  const deflate = createDeflate({ dictionary, level: 9, flush: constants.Z_SYNC_FLUSH });
  return (headers) => {
    const entries = Object.entries(headers).flatMap(([name, value]) => [
      words(name.length),
      Buffer.from(name),
      words(value.length),
      Buffer.from(value),
    ]);
    return through(deflate, Buffer.concat([words(Object.keys(headers).length), ...entries]));
  };
}

/** Speaks SPDY/3.1 as a client, on a connection that has left HTTP. */
export function spdyClient(socket: Duplex): SpdyClient {
  const compress = headerCompressor();
  const inflate = createInflate({ dictionary, finishFlush: constants.Z_SYNC_FLUSH });
  const streams = new Map<number, Stream>();
  const frames: RawFrame[] = [];
  const closed = Promise.withResolvers<void>();
  let nextId = 1;
  let opening = Promise.resolve();
  const send = (...parts: readonly Buffer[]) =>
    new Promise<void>((resolve) => socket.write(Buffer.concat(parts), () => resolve()));
  let reading = Promise.withResolvers<void>();
  reading.resolve();
  const take = async (frame: RawFrame) => {
    frames.push(frame.type === 0 ? { ...frame, payload: Buffer.alloc(0) } : frame);
    const stream = streams.get(frame.id);
    if (frame.type === 0) stream?.data(frame.payload, (frame.flags & 1) !== 0);
    if (frame.type === 2) stream?.replied(await through(inflate, frame.payload.subarray(4)));
    if (frame.type === 3) stream?.wasReset();
  };
  const read = async () => {
    let buffered: Buffer = Buffer.alloc(0);
    for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      buffered = Buffer.concat([buffered, chunk]);
      while (buffered.length >= 8 && buffered.length >= 8 + buffered.readUIntBE(5, 3)) {
        const end = 8 + buffered.readUIntBE(5, 3);
        await take(frameOf(buffered.subarray(0, end)));
        await reading.promise;
        buffered = buffered.subarray(end);
      }
    }
  };
  const onGone = () => {
    for (const stream of streams.values()) stream.gone();
    closed.resolve();
  };
  socket.on("error", () => undefined);
  read().then(onGone, onGone);
  return {
    frames,
    socket,
    closed: closed.promise,
    raw: send,
    pause: () => {
      reading = Promise.withResolvers();
    },
    resume: () => reading.resolve(),
    async open(headers) {
      const stream = new Stream(nextId, send);
      nextId += 2;
      streams.set(stream.id, stream);
      // Header blocks go out in the order in which they were compressed.
      opening = opening.then(async () => {
        const block = await compress(headers);
        await send(controlFrame(1, Buffer.concat([words(stream.id, 0), Buffer.alloc(2), block])));
      });
      await stream.reply;
      return stream;
    },
  };
}

function frameOf(bytes: Buffer): RawFrame {
  const control = (bytes.readUInt8(0) & 0x80) !== 0;
  const payload = bytes.subarray(8);
  return {
    type: control ? bytes.readUInt16BE(2) : 0,
    flags: bytes.readUInt8(4),
    id: control ? payload.readUInt32BE(0) : bytes.readUInt32BE(0),
    payload,
  };
}

class Stream implements ClientStream {
  readonly id: number;
  readonly #send: (...parts: readonly Buffer[]) => Promise<void>;
  readonly #parts: Buffer[] = [];
  readonly #all = Promise.withResolvers<string>();
  readonly #reply = Promise.withResolvers<void>();
  #reset = false;
  onData?: (data: Buffer) => void;

  constructor(id: number, send: (...parts: readonly Buffer[]) => Promise<void>) {
    this.id = id;
    this.#send = send;
    this.#reply.promise.catch(() => undefined);
  }

  get text(): Promise<string> {
    return this.#all.promise;
  }

  get reply(): Promise<void> {
    return this.#reply.promise;
  }

  isReset = () => this.#reset;

  write(data: Buffer | string): Promise<void> {
    return this.#send(dataFrame(this.id, Buffer.from(data)));
  }

  end(): Promise<void> {
    return this.#send(dataFrame(this.id, Buffer.alloc(0), 1));
  }

  reset(): Promise<void> {
    return this.#send(controlFrame(3, words(this.id, 5)));
  }

  data(data: Buffer, last: boolean): void {
    if (this.onData) this.onData(data);
    else this.#parts.push(data);
    if (last) this.#finish();
  }

  replied(block: Buffer): void {
    if (block.equals(words(0))) this.#reply.resolve();
    else this.#reply.reject(new Error(`unexpected headers in the reply: ${block.toString("hex")}`));
  }

  wasReset(): void {
    this.#reset = true;
    this.gone();
  }

  gone(): void {
    this.#reply.reject(new Error(this.#reset ? "stream reset" : "connection gone"));
    this.#finish();
  }

  #finish(): void {
    this.#all.resolve(Buffer.concat(this.#parts).toString());
  }
}

/** What a zlib stream makes of some input, flushed. */
function through(zlib: NodeJS.ReadWriteStream, input: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const keep = (part: Buffer) => parts.push(part);
    zlib.on("data", keep);
    zlib.write(input, () => {
      setImmediate(() => {
        zlib.removeListener("data", keep);
        resolve(Buffer.concat(parts));
      });
    });
  });
}
