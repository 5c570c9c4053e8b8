import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import type { RunCommand } from "../../../src/seams/runtime.ts";
import type { CommandRequest } from "../../../src/streams/remote-command.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { ask, dialWebSocket, startServer, until } from "./clients.ts";

const all: CommandRequest = { stdin: true, stdout: true, stderr: true, tty: false };

/** Echoes its input once it has ended; exits with 4. */
const answerAll: RunCommand = async ({ stdin, stdout, stderr }) => {
  assert.ok(stdin && stdout && stderr);
  stdout.write(`heard: ${await text(stdin)}`);
  stderr.write("to stderr");
  return 4;
};

/** Does nothing until the client disconnects. */
const idle: RunCommand = (_streams, signal) =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(0)));

const webSocketHeaders = (protocols: string) => ({
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
  "sec-websocket-version": "13",
  "sec-websocket-protocol": protocols,
});

test("v5: sends an empty first message on stdout, ends stdin at (255, 0), sends the exit code and closes with 1000", async () => {
  await using server = startServer();
  const client = await dialWebSocket(server.command(all, answerAll), "v5.channel.k8s.io");
  assert.equal(client.ws.protocol, "v5.channel.k8s.io");
  client.send(0, "one ");
  client.send(0, "two");
  client.send(255, Buffer.from([0]));
  assert.equal(await client.closed, 1000);
  assert.deepEqual(client.messages[0], { channel: 1, data: Buffer.alloc(0), isBinary: true });
  assert.equal(client.text(1), "heard: one two");
  assert.equal(client.text(2), "to stderr");
  const status = JSON.parse(client.text(3)) as { reason: string; details: unknown };
  assert.equal(status.reason, "NonZeroExitCode");
  assert.deepEqual(status.details, { causes: [{ reason: "ExitCode", message: "4" }] });
  assert.equal(client.messages.at(-1)?.channel, 3);
});

test("v4 sends the status as JSON; older versions send it as text, and channel 255 closes nothing in them", async () => {
  await using server = startServer();
  const run: RunCommand = async ({ stdin }) => {
    assert.ok(stdin);
    for await (const part of stdin) return String(part) === "go" ? 9 : 0;
    return 1;
  };
  const failure = "command terminated with non-zero exit code: 9";
  for (const [protocols, expected] of [
    [["v4.channel.k8s.io"], "ExitCode"],
    [["channel.k8s.io"], failure],
    [[], failure],
  ] as const) {
    const client = await dialWebSocket(server.command(all, run), ...protocols);
    client.send(255, Buffer.from([0]));
    client.send(0, "go");
    assert.equal(await client.closed, 1000);
    if (expected === failure) assert.equal(client.text(3), failure);
    else assert.match(client.text(3), new RegExp(expected));
  }
});

test("base64: uses digits for channels and text messages", async () => {
  await using server = startServer();
  for (const protocol of ["v4.base64.channel.k8s.io", "base64.channel.k8s.io"]) {
    const run: RunCommand = async ({ stdin, stdout }) => {
      assert.ok(stdin && stdout);
      for await (const part of stdin) {
        stdout.write(part);
        break;
      }
      return 0;
    };
    const client = await dialWebSocket(server.command(all, run), protocol);
    client.ws.send(`0${Buffer.from("grüße").toString("base64")}`);
    await client.closed;
    assert.ok(client.messages.every(({ isBinary }) => !isBinary));
    const digit = "1".charCodeAt(0);
    assert.equal(Buffer.from(client.text(digit), "base64").toString(), "grüße");
  }
});

test("sends the empty first message on the lowest channel that the client reads", async () => {
  await using server = startServer();
  for (const [request, channel] of [
    [{ ...all, stdout: false }, 2],
    [{ ...all, stdout: false, stderr: false }, 3],
  ] as const) {
    const client = await dialWebSocket(server.command(request, idle), "v4.channel.k8s.io");
    await until(() => client.messages.length > 0);
    assert.equal(client.messages[0]?.channel, channel);
    client.ws.terminate();
  }
});

test("accepts terminal sizes on channel 4 only with a terminal", async () => {
  await using server = startServer();
  for (const tty of [true, false]) {
    const sizes: string[] = [];
    const run: RunCommand = async (streams) => {
      for await (const { width, height } of streams.sizes) {
        sizes.push(`${width}x${height}`);
        if (sizes.length === 2) break;
      }
      return 0;
    };
    const client = await dialWebSocket(server.command({ ...all, stderr: false, tty }, run), "v5.channel.k8s.io");
    client.send(4, '{"Width":80,"Height":24}');
    await until(() => !tty || sizes.length === 1);
    if (tty) client.send(4, '{"Width":81,"Height":25}');
    await client.closed;
    assert.deepEqual(sizes, tty ? ["80x24", "81x25"] : []);
  }
});

test("aborts the command and fails stdin when the client disconnects", async () => {
  await using server = startServer();
  for (const leave of ["close", "terminate"] as const) {
    const ended = Promise.withResolvers<{ code?: string; aborted: boolean }>();
    const run: RunCommand = async ({ stdin }, signal) => {
      assert.ok(stdin);
      const error = (await text(stdin).catch((reason: unknown) => reason)) as { code?: string };
      ended.resolve({ ...(error.code && { code: error.code }), aborted: signal.aborted });
      return 0;
    };
    const client = await dialWebSocket(server.command(all, run), "v5.channel.k8s.io");
    client.send(0, "half");
    client.ws[leave]();
    const { code, aborted } = await ended.promise;
    assert.equal(code, "cancelled");
    if (!aborted) await until(() => aborted);
  }
});

test("applies backpressure to output that the client does not read and stdin that the command does not read", async () => {
  await using server = startServer();
  let written = 0;
  const run: RunCommand = async ({ stdout }) => {
    assert.ok(stdout);
    for (; written < 256; written++) {
      if (!stdout.write(Buffer.alloc(1 << 15, "x")))
        await new Promise<void>((resolve) => stdout.once("drain", resolve));
    }
    return 0;
  };
  const client = await dialWebSocket(server.command(all, run), "v5.channel.k8s.io");
  client.ws.pause();
  let sent = 0;
  const piece = Buffer.alloc(1 << 15);
  const sendMore = () => {
    if (sent++ < 256) client.ws.send(piece, sendMore);
  };
  sendMore();
  for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
  assert.ok(written < 16, `${written} chunks of 32 KiB are under way`);
  assert.ok(sent < 16, `${sent} chunks of 32 KiB are under way`);
  client.ws.resume();
  await client.closed;
  assert.equal(client.text(1).length, 256 << 15);
});

test("delivers messages sent immediately, and ignores those for unknown channels", async () => {
  await using server = startServer();
  const run: RunCommand = async ({ stdin, stdout }) => {
    assert.ok(stdin && stdout);
    await pipeline(stdin, stdout);
    return 0;
  };
  const client = await dialWebSocket(server.command({ ...all, stderr: false }, run), "v5.channel.k8s.io");
  client.ws.send(Buffer.alloc(0));
  client.send(77, "nobody");
  client.send(255, Buffer.from([99]));
  for (let part = 0; part < 100; part++) client.send(0, `${part},`);
  client.send(255, Buffer.from([0]));
  await client.closed;
  assert.equal(client.text(1), Array.from({ length: 100 }, (_, part) => `${part},`).join(""));
});

test("answers pings; ends the connection at a close message without a channel", async () => {
  await using server = startServer();
  const client = await dialWebSocket(server.command(all, idle), "v5.channel.k8s.io");
  let pong = "";
  client.ws.on("pong", (data) => (pong = data.toString()));
  client.ws.ping("are you there");
  await until(() => pong === "are you there");
  client.send(255, Buffer.from([0, 1]));
  assert.equal(await client.closed, 1006);
});

test("stops answering pings of a client that does not read the pongs", async () => {
  await using server = startServer();
  const { upgraded } = await ask(server.command(all, idle), webSocketHeaders("v5.channel.k8s.io"), "GET");
  assert.ok(upgraded);
  const pings = Buffer.concat(Array.from({ length: 1000 }, () => Buffer.from([0x89, 0x80, 0, 0, 0, 0])));
  for (let round = 0; round < 200; round++)
    await new Promise((resolve) => {
      upgraded.write(pings, resolve);
    });
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
  let answered = 0;
  upgraded.on("data", (part: Buffer) => (answered += part.length / 2));
  for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
  // As many as the connection itself buffers, and a few more.
  assert.ok(answered > 0 && answered < (1 << 15) + 100, `${answered} pongs were waiting`);
  upgraded.destroy();
});

test("closes a WebSocket that is idle for 4 hours", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const client = await dialWebSocket(server.command(all, idle), "v5.channel.k8s.io");
  await clock.advance(4 * 3_600_000 - 1);
  assert.equal(client.ws.readyState, client.ws.OPEN);
  await clock.advance(1);
  await client.closed;
});

test("subprotocols: chooses the client's first supported one; 403 without one; only GET opens a WebSocket", async () => {
  await using server = startServer();
  const run: RunCommand = () => Promise.resolve(0);
  const chosen = await ask(
    server.command(all, run),
    webSocketHeaders("v9.channel.k8s.io, v4.channel.k8s.io, v5.channel.k8s.io"),
    "GET",
  );
  assert.equal(chosen.headers["sec-websocket-protocol"], "v4.channel.k8s.io");
  chosen.upgraded?.destroy();
  const none = await ask(server.command(all, run), webSocketHeaders("v9.channel.k8s.io"), "GET");
  assert.equal(none.status, 403);
  assert.match(none.body, /not supported/);
  const posted = await ask(server.command(all, run), webSocketHeaders("v5.channel.k8s.io"), "POST");
  assert.equal(posted.status, 405);
});
