import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import { Readable } from "node:stream";
import type { RunCommand } from "../../../src/seams/runtime.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import { binaryMessages } from "../../fakes/binary-messages.ts";
import { spdyClient } from "../../fakes/spdy-client.ts";
import { spdy, spdyForward, upgrade } from "./backend.ts";
import { startSpdyRuntime, webSocketTo } from "./spdy-runtime.ts";

const everything = "/exec/ns/p/c?command=sh&input=1&output=1&error=1";
const lost = "Internal error occurred: the connection to the container was lost";

interface Told {
  readonly status: string;
  readonly message?: string;
  readonly reason?: string;
  readonly details?: { readonly causes: readonly { readonly message: string }[] };
}
const told = (status: string): Told => JSON.parse(status) as Told;

/** Echoes its input at the end; exits with 4. */
const answerAll: RunCommand = async ({ stdin, stdout, stderr }) => {
  assert.ok(stdin && stdout && stderr);
  stdout.write(`heard: ${await text(stdin)}`);
  stderr.write("to stderr");
  return 4;
};

/** Writes output and continues until its connection breaks. */
const talksOn: RunCommand = ({ stdout }, signal) => {
  assert.ok(stdout);
  stdout.write("so far");
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(0)));
};

test("exec over WebSocket works with a SPDY-only runtime: streams, half-close, exit code, close", async (t) => {
  await using runtime = await startSpdyRuntime(t, { run: answerAll });
  const client = await webSocketTo(runtime.server, everything, "v5.channel.k8s.io");
  assert.equal(client.ws.protocol, "v5.channel.k8s.io");
  client.send(0, "one ");
  client.send(0, "two");
  client.send(255, Buffer.from([0]));
  assert.equal(await client.closed, 1000);
  assert.deepEqual([client.text(1), client.text(2)], ["heard: one two", "to stderr"]);
  assert.deepEqual(told(client.text(3)), {
    status: "Failure",
    message: "command terminated with non-zero exit code: 4",
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "4" }] },
  });
  assert.equal(client.messages.at(-1)?.channel, 3);
  const [asked] = runtime.requests;
  assert.deepEqual(
    [asked?.method, asked?.headers.upgrade, asked?.headers["x-stream-protocol-version"]],
    ["POST", "SPDY/3.1", "v4.channel.k8s.io"],
  );
  assert.equal(asked?.headers["sec-websocket-protocol"], undefined);
});

test("translates older WebSocket subprotocols", async (t) => {
  const run: RunCommand = async ({ stdin }) => {
    assert.ok(stdin);
    for await (const part of stdin) return String(part) === "go" ? 9 : 0;
    return 1;
  };
  await using runtime = await startSpdyRuntime(t, { run });
  for (const [protocol, go, status] of [
    ["v4.channel.k8s.io", "\0go", /"NonZeroExitCode"/],
    ["v4.base64.channel.k8s.io", `0${Buffer.from("go").toString("base64")}`, /^/],
    ["channel.k8s.io", "\0go", /^command terminated with non-zero exit code: 9$/],
  ] as const) {
    const client = await webSocketTo(runtime.server, everything, protocol);
    client.ws.send(go, { binary: !protocol.includes("base64") });
    assert.equal(await client.closed, 1000);
    assert.match(client.text(protocol.includes("base64") ? 0x33 : 3), status);
  }
});

test("forwards terminal resizes to the runtime", async (t) => {
  const run: RunCommand = async ({ tty, sizes, stdout }) => {
    assert.ok(tty && stdout);
    for await (const { width, height } of sizes) {
      stdout.write(`${width}x${height}`);
      break;
    }
    return 0;
  };
  await using runtime = await startSpdyRuntime(t, { run });
  const client = await webSocketTo(
    runtime.server,
    "/exec/ns/p/c?command=sh&input=1&output=1&tty=1",
    "v5.channel.k8s.io",
  );
  client.send(4, '{"Width":132,"Height":25}');
  assert.equal(await client.closed, 1000);
  assert.deepEqual([client.text(1), told(client.text(3))], ["132x25", { status: "Success" }]);
});

test("translates 16 MiB in each direction unchanged", async (t) => {
  const total = 256;
  const block = Buffer.alloc(1 << 16, "0123456789abcdef");
  const blocks = function* () {
    for (let at = 0; at < total; at += 1) {
      const next = Buffer.from(block);
      next.writeUInt32BE(at);
      yield next;
    }
  };
  const expected = createHash("sha256");
  for (const part of blocks()) expected.update(part);
  const sum = expected.digest("hex");
  const run: RunCommand = async ({ stdin, stdout, stderr }) => {
    assert.ok(stdin && stdout && stderr);
    const heard = createHash("sha256");
    for await (const part of stdin) heard.update(part as Buffer);
    stderr.write(heard.digest("hex"));
    await pipeline(Readable.from(blocks()), stdout);
    return 0;
  };
  await using runtime = await startSpdyRuntime(t, { run });
  const client = await webSocketTo(runtime.server, everything, "v5.channel.k8s.io");
  for (const part of blocks()) client.send(0, part);
  client.send(255, Buffer.from([0]));
  await client.closed;
  assert.equal(client.text(2), sum);
  const output = createHash("sha256");
  for (const { channel, data } of client.messages) if (channel === 1) output.update(data);
  assert.equal(output.digest("hex"), sum);
  assert.deepEqual(told(client.text(3)), { status: "Success" });
});

test("reports a broken runtime connection or a stopping server on channel 3", async (t) => {
  for (const end of ["cut", "stop"] as const) {
    await using runtime = await startSpdyRuntime(t, { run: talksOn });
    const client = await webSocketTo(runtime.server, everything, "v5.channel.k8s.io");
    while (client.text(1) === "") await new Promise(setImmediate);
    if (end === "cut") runtime.cut();
    else await runtime.server.stop();
    assert.equal(await client.closed, 1000);
    assert.equal(client.text(1), "so far");
    const { status, message } = told(client.text(3));
    assert.deepEqual([status, message], ["Failure", lost], end);
  }
});

test("reports the runtime's refusal on channel 3", async (t) => {
  await using runtime = await startSpdyRuntime(t, {});
  const client = await webSocketTo(runtime.server, everything, "v5.channel.k8s.io");
  assert.equal(await client.closed, 1000);
  assert.equal(
    told(client.text(3)).message,
    "Internal error occurred: unable to upgrade connection: 404 page not found",
  );
});

test("closes the runtime's connection when a WebSocket client vanishes", async (t) => {
  const gone = Promise.withResolvers<void>();
  const run: RunCommand = (_streams, signal) =>
    new Promise((resolve) =>
      signal.addEventListener("abort", () => {
        gone.resolve();
        resolve(0);
      }),
    );
  await using runtime = await startSpdyRuntime(t, { run });
  const client = await webSocketTo(runtime.server, everything, "v5.channel.k8s.io");
  while (runtime.requests.length === 0) await new Promise(setImmediate);
  client.ws.terminate();
  await gone.promise;
});

test("reports a broken connection on a SPDY client's error stream in its protocol version", async (t) => {
  for (const end of ["cut", "stop"] as const) {
    for (const version of ["v4.channel.k8s.io", "v3.channel.k8s.io"]) {
      await using runtime = await startSpdyRuntime(t, { run: talksOn });
      const { socket } = await upgrade(runtime.server, everything, { ...spdy, "x-stream-protocol-version": version });
      const client = spdyClient(socket);
      const streams = [];
      for (const streamtype of ["error", "stdin", "stdout", "stderr"]) streams.push(await client.open({ streamtype }));
      const [errors, , output] = streams;
      assert.ok(errors && output);
      while (!client.frames.some(({ type, id }) => type === 0 && id === output.id)) await new Promise(setImmediate);
      if (end === "cut") runtime.cut();
      else await runtime.server.stop();
      await client.closed;
      assert.equal(await output.text, "so far");
      const said = await errors.text;
      assert.equal(version.startsWith("v4") ? told(said).message : said, lost, `${end} ${version}`);
    }
  }
});

test("exec over SPDY works with a SPDY-only runtime: streams, half-close, exit code in the client's protocol version", async (t) => {
  await using runtime = await startSpdyRuntime(t, { run: answerAll });
  for (const version of ["v4.channel.k8s.io", "v3.channel.k8s.io"]) {
    const { response, socket } = await upgrade(runtime.server, everything, {
      ...spdy,
      "x-stream-protocol-version": version,
    });
    assert.equal(response.headers["x-stream-protocol-version"], version);
    const client = spdyClient(socket);
    const [errors, stdin, stdout, stderr] = await Promise.all(
      ["error", "stdin", "stdout", "stderr"].map((streamtype) => client.open({ streamtype })),
    );
    assert.ok(errors && stdin && stdout && stderr);
    await stdin.write("one");
    await stdin.end();
    assert.deepEqual([await stdout.text, await stderr.text], ["heard: one", "to stderr"]);
    const said = await errors.text;
    const message = "command terminated with non-zero exit code: 4";
    assert.equal(version.startsWith("v4") ? told(said).message : said, message);
    await client.closed;
  }
  assert.deepEqual(
    runtime.requests.map(({ headers }) => [headers["x-stream-protocol-version"], headers.cookie]),
    [
      ["v4.channel.k8s.io", undefined],
      ["v4.channel.k8s.io", undefined],
    ],
  );
});

test("refuses a SPDY client without a common protocol, without asking the runtime", async (t) => {
  await using runtime = await startSpdyRuntime(t, { run: answerAll });
  const headers = { ...spdy, "x-stream-protocol-version": "v9.channel.k8s.io" };
  await assert.rejects(upgrade(runtime.server, everything, headers), /answered 403/);
  await assert.rejects(upgrade(runtime.server, "/portForward/ns/p", headers), /answered 403/);
  assert.equal(runtime.requests.length, 0);
});

test("port-forward over SPDY: gives the runtime's errors unchanged, and ends with the runtime's connection", async (t) => {
  const forward = (port: number) => {
    if (port === 81) return Promise.reject(new Error("nothing listens"));
    const [near, far] = connectionPair();
    far.on("error", () => undefined).pipe(far);
    return Promise.resolve(near);
  };
  await using runtime = await startSpdyRuntime(t, { forward });
  const { socket } = await upgrade(runtime.server, "/portForward/ns/p", spdyForward);
  const client = spdyClient(socket);
  const open = async (port: string) => [
    await client.open({ streamtype: "error", port, requestid: port }),
    await client.open({ streamtype: "data", port, requestid: port }),
  ];
  const [[errors, failed], [, data]] = [await open("81"), await open("80")];
  assert.ok(errors && failed && data);
  assert.deepEqual([await errors.text, await failed.text], ["error forwarding port 81: nothing listens", ""]);
  await data.write("there");
  while (!client.frames.some(({ type, id }) => type === 0 && id === data.id)) await new Promise(setImmediate);
  runtime.cut();
  assert.equal(await data.text, "there");
  await data.end();
  await client.closed;
});

test("tunnels port-forward to a SPDY-only runtime", async (t) => {
  const forward = () => {
    const [near, far] = connectionPair();
    far.pipe(far);
    return Promise.resolve(near);
  };
  await using runtime = await startSpdyRuntime(t, { forward });
  const headers = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io",
  };
  const { response, socket } = await upgrade(runtime.server, "/portForward/ns/p", headers, "GET");
  assert.equal(response.headers["sec-websocket-protocol"], "SPDY/3.1+portforward.k8s.io");
  const client = spdyClient(binaryMessages(socket));
  const errors = await client.open({ streamtype: "error", port: "80", requestid: "0" });
  const data = await client.open({ streamtype: "data", port: "80", requestid: "0" });
  await errors.end();
  await data.write("there and back");
  await data.end();
  assert.deepEqual([await data.text, await errors.text], ["there and back", ""]);
  assert.deepEqual(
    [runtime.requests[0]?.headers.upgrade, runtime.requests[0]?.headers["x-stream-protocol-version"]],
    ["SPDY/3.1", "portforward.k8s.io"],
  );
  socket.destroy();
});
