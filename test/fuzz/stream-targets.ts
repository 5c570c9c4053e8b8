import { EventEmitter } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import { PassThrough, Readable } from "node:stream";
import type { WebSocket } from "ws";
import { jsonLines } from "../../providers/docker/client/json-lines.ts";
import { createFrames } from "../../providers/docker/client/frames.ts";
import { createFramedParser, createTerminalParser } from "../../providers/docker/logs/logs.ts";
import { ShellFrame } from "../../providers/ssh/shell/shell.ts";
import { connectMessageBus } from "../../src/host/systemd/message-bus.ts";
import { createMessageReader, valuesOf } from "../../src/host/systemd/wire-format.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { startCall } from "../../src/lib/grpc.ts";
import { createFairShares } from "../../src/lib/fair-shares.ts";
import { createConnectionForwarder } from "../../src/service-tunnel/connections.ts";
import { createTunnelGate } from "../../src/service-tunnel/gate.ts";
import { connectionPair } from "../fakes/connection-pair.ts";
import { FrameReader, dataFrameHeader, pingFrame, synStreamFrame } from "../../src/streams/spdy/frames.ts";
import { createHeaderReader, createHeaderWriter } from "../../src/streams/spdy/header-block.ts";
import { terminalSizes } from "../../src/streams/terminal-sizes.ts";
import { Channels } from "../../src/streams/websocket/channels.ts";
import { never } from "../fakes/signals.ts";
import type { Target } from "./target.ts";

/** An input in pieces, as a connection may bring it: of one byte, then of many. */
function pieces(input: Buffer): Buffer[] {
  const first = Array.from({ length: Math.min(32, input.length) }, (_, at) => input.subarray(at, at + 1));
  const rest = Array.from({ length: Math.ceil(Math.max(0, input.length - 32) / 1000) }, (_, at) =>
    input.subarray(32 + at * 1000, 32 + (at + 1) * 1000),
  );
  return [...first, ...rest];
}

function framed(...texts: readonly string[]): Buffer {
  return Buffer.concat(
    texts.map((text) => {
      const head = Buffer.alloc(5);
      head.writeUInt32BE(text.length, 1);
      return Buffer.concat([head, Buffer.from(text)]);
    }),
  );
}

async function grpcMessages(input: Buffer): Promise<number> {
  const stream = Object.assign(new EventEmitter(), {
    end() {},
    async *[Symbol.asyncIterator]() {
      yield* pieces(input);
    },
  });
  const session = { request: () => stream } as unknown as ClientHttp2Session;
  const call = { path: "/a/b", message: Buffer.alloc(0), userAgent: "fuzz" };
  let bytes = 0;
  for await (const message of startCall(session, call, never).messages) bytes += message.length;
  return bytes;
}

const dockerFrame = (kind: number, text: string) => {
  const head = Buffer.alloc(8);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([head, Buffer.from(text)]);
};
const stamped = "2026-01-02T03:04:05.000000000Z a line\n";

const headerBlock = createHeaderWriter().write(
  new Map([
    ["streamtype", "data"],
    ["port", "80"],
  ]),
);

function spdyFrames(input: Buffer): void {
  const [frames, headers] = [new FrameReader(), createHeaderReader()];
  for (const piece of pieces(input))
    for (const frame of frames.read(piece))
      if (frame.kind === "control" && frame.type === 1) headers.read(frame.payload.subarray(10));
}

/** Messages of a client to a WebSocket with numbered channels, each with its length before it. */
function webSocketMessages(input: Buffer): void {
  for (const base64 of [true, false]) {
    const socket = Object.assign(new EventEmitter(), {
      pause() {},
      resume() {},
      terminate() {},
      close() {},
      send() {},
    });
    const channels = new Channels({
      ws: socket as unknown as WebSocket,
      base64,
      supportsClose: true,
      clock: systemClock(),
    });
    for (const id of [0, 4])
      channels
        .open(id)
        .on("error", () => undefined)
        .resume();
    for (let at = 0; at < input.length; ) {
      const length = 1 + (input[at] ?? 0);
      socket.emit("message", input.subarray(at + 1, at + 1 + length), false);
      at += 1 + length;
    }
    socket.emit("close");
  }
}

const helloReply = Buffer.from(
  "6c0201010a0000000100000024000000050175000100000006017300040000003a312e31000000000801670001730000050000003a312e3100".replaceAll(
    " ",
    "",
  ),
  "hex",
);

/** The values of all messages in a stream of them. */
function busValues(input: Buffer): unknown {
  const values: unknown[] = [];
  const reader = createMessageReader((message) => values.push(valuesOf(message)));
  pieces(input).forEach(reader);
  return values;
}

/** What a message bus says after a client has logged in. */
async function busMessages(input: Buffer): Promise<void> {
  const [from, to] = [new PassThrough(), new PassThrough()];
  from.write("OK 0123456789abcdef0123456789abcdef\r\n");
  to.resume();
  const stop = new AbortController();
  const connecting = connectMessageBus({ from, to }, systemClock(), stop.signal);
  for (const piece of pieces(input)) from.write(piece);
  from.end();
  stop.abort();
  const bus = await connecting.catch(() => undefined);
  bus?.close();
}

/** The line with which a connection of a pod begins. */
async function podConnection(input: Buffer): Promise<void> {
  const [near, far] = connectionPair();
  const join = createConnectionForwarder({
    gate: createTunnelGate(),
    shares: createFairShares(100),
    onRefused: () => undefined,
    onLimitReached: () => undefined,
    clock: systemClock(),
  });
  far.on("error", () => undefined);
  const joined = join(near);
  for (const piece of pieces(input)) far.write(piece);
  far.end();
  far.resume();
  await joined;
}

const all = (parser: { parse(block: Buffer): Iterable<unknown>; flush(): Iterable<unknown> }, input: Buffer) => [
  ...pieces(input).flatMap((piece) => [...parser.parse(piece)]),
  ...parser.flush(),
];

export const streamTargets: readonly Target[] = [
  { name: "gRPC frames", samples: [framed("one", "", "a longer message")], decode: grpcMessages },
  {
    name: "Docker stream",
    samples: [Buffer.concat([dockerFrame(1, "out"), dockerFrame(2, "err"), dockerFrame(1, "")])],
    decode(input) {
      const frames = createFrames();
      return pieces(input).flatMap((piece) => [...frames(piece)]);
    },
  },
  {
    name: "Docker log of a container",
    samples: [Buffer.concat([dockerFrame(1, stamped), dockerFrame(2, stamped)])],
    decode: (input) => all(createFramedParser(), input),
  },
  {
    name: "Docker log of a terminal",
    samples: [Buffer.from(stamped.repeat(3))],
    decode: (input) => all(createTerminalParser(), input),
  },
  {
    name: "Docker JSON lines",
    samples: [
      Buffer.from('{"status":"Downloading","id":"a","progressDetail":{"current":1,"total":2}}\r\n{"status":"Done"}\n'),
    ],
    decode: (input) => Array.fromAsync(jsonLines(Readable.from(pieces(input)))),
  },
  {
    name: "shell's answer",
    samples: [Buffer.from("some output\nMARK 0 12\n")],
    decode(input) {
      const frame = new ShellFrame("MARK", 1000);
      return pieces(input).map((piece) => frame.push(piece));
    },
  },
  {
    name: "SPDY frames",
    samples: [
      Buffer.concat([synStreamFrame(1, headerBlock), dataFrameHeader(1, 4, true), Buffer.from("data"), pingFrame(1)]),
    ],
    decode: spdyFrames,
  },
  {
    name: "WebSocket messages",
    samples: [Buffer.from([4, 0, 1, 2, 3, 4, 1, 0xff, 0, 3, 0x30, 0x59, 0x51, 0x3d])],
    decode: webSocketMessages,
  },
  {
    name: "terminal sizes",
    samples: [Buffer.from('{"Width":80,"Height":24}\n{"Width":81,"Height":25}\n')],
    decode: (input) => Array.fromAsync(terminalSizes(Readable.from(pieces(input)))),
  },
  { name: "D-Bus messages", samples: [helloReply, Buffer.concat([helloReply, helloReply])], decode: busValues },
  { name: "D-Bus connection", samples: [helloReply], decode: busMessages },
  { name: "connection of a pod", samples: [Buffer.from("tcp 10.0.0.1:1 10.0.0.2 80\n")], decode: podConnection },
];
