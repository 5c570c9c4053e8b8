import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import type { CommandStreams, RunCommand } from "../../../src/seams/runtime.ts";
import type { CommandRequest } from "../../../src/streams/remote-command.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { ask, dialSpdy, spdyHeaders, startServer, until } from "./clients.ts";

const all: CommandRequest = { stdin: true, stdout: true, stderr: true, tty: false };
const outOnly: CommandRequest = { stdin: false, stdout: true, stderr: false, tty: false };

/** Opens the streams of a command, error first, as kubectl does. */
async function openAll(client: Awaited<ReturnType<typeof dialSpdy>>, ...types: readonly string[]) {
  const streams = new Map<string, Awaited<ReturnType<typeof client.open>>>();
  for (const type of ["error", ...types]) streams.set(type, await client.open({ streamtype: type }));
  return (type: string) => {
    const stream = streams.get(type);
    assert.ok(stream);
    return stream;
  };
}

function outputs({ stdout, stderr }: CommandStreams) {
  assert.ok(stdout && stderr);
  return { stdout, stderr };
}

test("v4: passes stdin until its half-close and both outputs, then sends the exit code", async () => {
  await using server = startServer();
  const endpoint = server.command(all, async (streams) => {
    const { stdout, stderr } = outputs(streams);
    assert.ok(streams.stdin);
    assert.equal(streams.tty, false);
    const asked = await text(streams.stdin);
    stderr.write("to stderr");
    stdout.write(`heard: ${asked}`);
    return 3;
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stdin", "stdout", "stderr");
  await stream("stdin").write("one ");
  await stream("stdin").write("two");
  await stream("stdin").end();
  assert.equal(await stream("stdout").text, "heard: one two");
  assert.equal(await stream("stderr").text, "to stderr");
  assert.deepEqual(JSON.parse(await stream("error").text), {
    status: "Failure",
    message: "command terminated with non-zero exit code: 3",
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "3" }] },
  });
  await client.closed;
  const ofError = client.frames.findIndex(({ type, id }) => type === 0 && id === stream("error").id);
  const lastOutput = client.frames.findLastIndex(
    ({ type, id }) => type === 0 && [stream("stdout").id, stream("stderr").id].includes(id),
  );
  assert.ok(ofError > lastOutput, "the status comes after all output");
  const goAway = client.frames.at(-1);
  assert.deepEqual([goAway?.type, goAway?.payload.readUInt32BE(4)], [7, 0]);
});

for (const [protocol, success, failure] of [
  ["v4.channel.k8s.io", '{"status":"Success"}', undefined],
  ["v3.channel.k8s.io", "", "command terminated with non-zero exit code: 2"],
  ["v2.channel.k8s.io", "", "command terminated with non-zero exit code: 2"],
  ["channel.k8s.io", "", "command terminated with non-zero exit code: 2"],
] as const) {
  test(`${protocol}: reports success and failure on the error stream`, async () => {
    await using server = startServer();
    for (const [code, expected] of [[0, success] as const, [2, failure] as const]) {
      const client = await dialSpdy(
        server.command(outOnly, () => Promise.resolve(code)),
        protocol,
      );
      const stream = await openAll(client, "stdout");
      const told = await stream("error").text;
      if (expected !== undefined) assert.equal(told, expected);
      else assert.equal((JSON.parse(told) as { reason: string }).reason, "NonZeroExitCode");
    }
  });
}

test("reports a command that cannot run as an internal error with its message", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.command(outOnly, () => Promise.reject(new Error("no such container"))));
  const stream = await openAll(client, "stdout");
  assert.deepEqual(JSON.parse(await stream("error").text), {
    status: "Failure",
    message: "Internal error occurred: no such container",
    reason: "InternalError",
    code: 500,
  });
});

test("chooses the client's first supported protocol, and rejects a client without one", async () => {
  await using server = startServer();
  const run: RunCommand = () => Promise.resolve(0);
  const chosen = await ask(
    server.command(all, run),
    spdyHeaders("v9.channel.k8s.io", "v2.channel.k8s.io", "v4.channel.k8s.io"),
  );
  assert.equal(chosen.status, 101);
  assert.equal(chosen.headers.upgrade, "SPDY/3.1");
  assert.equal(chosen.headers["x-stream-protocol-version"], "v2.channel.k8s.io");
  chosen.upgraded?.destroy();
  const none = await ask(server.command(all, run), spdyHeaders("v9.channel.k8s.io"));
  assert.equal(none.status, 403);
  assert.match(
    String(none.headers["x-accepted-stream-protocol-versions"]),
    /^v4\.channel\.k8s\.io, .*, channel\.k8s\.io$/,
  );
});

test("terminal: waits for the resize stream; a slow reader gets only the newest size", async () => {
  await using server = startServer();
  const sizes: string[] = [];
  const started = Promise.withResolvers<void>();
  const mayRead = Promise.withResolvers<void>();
  const request = { stdin: true, stdout: true, stderr: false, tty: true };
  const endpoint = server.command(request, async (streams) => {
    started.resolve();
    await mayRead.promise;
    for await (const { width, height } of streams.sizes) {
      sizes.push(`${width}x${height}`);
      if (width === 4) return 0;
    }
    return 1;
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stdin", "stdout");
  let isStarted = false;
  void started.promise.then(() => (isStarted = true));
  await new Promise(setImmediate);
  assert.equal(isStarted, false);
  const resize = await client.open({ streamtype: "resize" });
  await started.promise;
  await resize.write('{"Width":1,"Height":1}\n{"Width":2,"Hei');
  await resize.write('ght":2}\n{"Width":3,"Height":30}');
  await new Promise(setImmediate);
  mayRead.resolve();
  await until(() => sizes.length > 0);
  await resize.write('{"Width":4,"Height":40}');
  assert.equal(await stream("error").text, '{"status":"Success"}');
  assert.deepEqual(sizes, ["3x30", "4x40"]);
});

test("aborts the command and fails its streams when the client disconnects or resets a stream", async () => {
  await using server = startServer();
  for (const leave of ["end", "destroy", "reset"] as const) {
    const ended = Promise.withResolvers<unknown>();
    const endpoint = server.command(all, async (streams, signal) => {
      assert.ok(streams.stdin);
      const failure = await text(streams.stdin).catch((error: unknown) => error);
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
      ended.resolve(failure);
      return 0;
    });
    const client = await dialSpdy(endpoint);
    const stream = await openAll(client, "stdin", "stdout", "stderr");
    await stream("stdin").write("half a sen");
    if (leave === "reset") await stream("stdin").reset();
    else client.socket[leave]();
    assert.equal(((await ended.promise) as { code?: string }).code, "cancelled", leave);
    client.socket.destroy();
  }
});

test("refuses unrequested streams, and reports missing ones after 30 s", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  let runs = 0;
  const client = await dialSpdy(server.command(all, () => Promise.resolve(runs++)));
  const error = await client.open({ streamtype: "error" });
  await client.open({ streamtype: "stdout" });
  await assert.rejects(client.open({ streamtype: "stdout" }), /stream reset/);
  await assert.rejects(client.open({ streamtype: "backdoor" }), /stream reset/);
  await clock.advance(29_999);
  assert.equal(runs, 0);
  await clock.advance(1);
  assert.match(await error.text, /timed out waiting for client to create streams/);
  await client.closed;
  assert.equal(runs, 0);
  client.socket.destroy();
});

test("optional streams, early or late, block nothing", async () => {
  await using server = startServer();
  const endpoint = server.command({ ...all, stderr: false }, async ({ stdin, stdout }) => {
    assert.ok(stdin && stdout);
    await pipeline(stdin, stdout);
    return 0;
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stderr", "stdin", "stdout");
  const late = await client.open({ streamtype: "resize" });
  const megabyte = Buffer.alloc(1 << 20);
  for (const unread of [stream("stderr"), stream("stdout"), stream("error"), late]) await unread.write(megabyte);
  await stream("stdin").write("still heard");
  await stream("stdin").end();
  assert.equal(await stream("stdout").text, "still heard");
});

test("closes a connection that is idle for 4 hours, and keeps an active one", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  let gone = false;
  const endpoint = server.command(all, (_streams, signal) => {
    return new Promise((resolve) =>
      signal.addEventListener("abort", () => {
        gone = true;
        resolve(0);
      }),
    );
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stdin", "stdout", "stderr");
  const hour = 3_600_000;
  await clock.advance(3 * hour);
  await stream("stdin").write("still here");
  await clock.advance(3 * hour);
  assert.equal(gone, false);
  await clock.advance(hour);
  assert.equal(gone, true);
  await client.closed;
});

test("applies backpressure to output that the client does not read and input that the command does not read", async () => {
  await using server = startServer();
  let written = 0;
  const endpoint = server.command(all, async (streams) => {
    const { stdout } = outputs(streams);
    const chunk = Buffer.alloc(1 << 15, "x");
    for (; written < 256; written++) {
      if (!stdout.write(chunk)) await new Promise<void>((resolve) => stdout.once("drain", resolve));
    }
    return 0;
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stdin", "stdout", "stderr");
  client.pause();
  for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
  const heldAt = written;
  assert.ok(heldAt < 16, `${heldAt} chunks of 32 KiB are under way`);
  let sent = 0;
  void (async () => {
    for (; sent < 256; sent++) await stream("stdin").write(Buffer.alloc(1 << 15));
  })();
  for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
  assert.ok(sent < 16, `${sent} chunks of 32 KiB are under way`);
  client.resume();
  assert.equal((await stream("stdout").text).length, 256 << 15);
  assert.equal(await stream("error").text, '{"status":"Success"}');
});

test("answers pings with their ID", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.command(all, () => Promise.resolve(0)));
  await client.raw(Buffer.from([0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7]));
  await until(() => client.frames.some(({ type, id }) => type === 6 && id === 7));
  client.socket.destroy();
});

test("cat: echoes input while it is being sent", async () => {
  await using server = startServer();
  const endpoint = server.command({ ...all, stderr: false }, async ({ stdin, stdout }) => {
    assert.ok(stdin && stdout);
    await pipeline(stdin, stdout);
    return 0;
  });
  const client = await dialSpdy(endpoint);
  const stream = await openAll(client, "stdin", "stdout");
  const echoed: string[] = [];
  stream("stdout").onData = (data) => echoed.push(data.toString());
  await stream("stdin").write("first");
  await until(() => echoed.join("") === "first");
  await stream("stdin").write("second");
  await stream("stdin").end();
  assert.equal(await stream("error").text, '{"status":"Success"}');
  assert.equal(echoed.join(""), "firstsecond");
});
