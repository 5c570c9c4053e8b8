import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import type { ConnectPort } from "../../../src/seams/runtime.ts";
import { binaryMessages } from "../../fakes/binary-messages.ts";
import { spdyClient } from "../../fakes/spdy-client.ts";
import { ask, dialWebSocket, startServer, until } from "./clients.ts";

test("v4: channels 2n and 2n+1 begin with the port; forwards both directions; the pod's end ends the connection", async () => {
  await using server = startServer();
  const connect: ConnectPort = (port) => {
    const [near, far] = connectionPair();
    far.write(`from ${port}`);
    far.once("data", (part) => far.end(` heard ${part}`));
    return Promise.resolve(near);
  };
  const client = await dialWebSocket(server.portForward([8200, 513], connect), "v4.channel.k8s.io");
  client.send(2, "second");
  client.send(0, "first");
  assert.equal(await client.closed, 1000);
  const first = [0, 1, 2, 3].map((channel) => client.messages.find((message) => message.channel === channel)?.data);
  assert.deepEqual(first, [8200, 8200, 513, 513].map(littleEndian));
  assert.equal(client.text(0).slice(2), "from 8200 heard first");
  assert.equal(client.text(2).slice(2), "from 513 heard second");
  assert.deepEqual([client.text(1).length, client.text(3).length], [2, 2]);
});

test("v4.base64: encodes a channel as one character, regardless of its number", async () => {
  await using server = startServer();
  const ports = [1, 2, 3, 4, 5, 6];
  const refuse: ConnectPort = () => Promise.reject(new CodedError("unavailable", "connection refused"));
  const client = await dialWebSocket(server.portForward(ports, refuse), "v4.base64.channel.k8s.io");
  await client.closed;
  const opened = client.messages.slice(0, 12).map(({ channel, data }) => [channel - 0x30, data.toString()]);
  const expected = ports.flatMap((port, at) =>
    [2 * at, 2 * at + 1].map((channel) => [channel, littleEndian(port).toString("base64")]),
  );
  assert.deepEqual(opened, expected);
});

test("v4: reports a failed connection on its error channel", async () => {
  await using server = startServer();
  const refuse: ConnectPort = () => Promise.reject(new CodedError("unavailable", "connection refused"));
  const client = await dialWebSocket(server.portForward([80], refuse), "v4.channel.k8s.io");
  assert.equal(await client.closed, 1000);
  assert.equal(client.text(1).slice(2), "error forwarding port 80: connection refused");
});

test("v4: closes the connections when the client disconnects", async () => {
  await using server = startServer();
  const [near, far] = connectionPair();
  const heard = text(far).catch((error: unknown) => (error as { code: string }).code);
  const client = await dialWebSocket(
    server.portForward([80], () => Promise.resolve(near)),
    "v4.channel.k8s.io",
  );
  client.send(0, "half a");
  client.ws.terminate();
  await until(() => near.destroyed);
  assert.equal(await heard, "unavailable");
});

test("the tunnel carries a SPDY connection with many connections in it", async () => {
  await using server = startServer();
  const connect: ConnectPort = () => {
    const [near, far] = connectionPair();
    far.on("error", () => undefined);
    far.pipe(far);
    return Promise.resolve(near);
  };
  const { upgraded, headers } = await ask(
    server.portForward([], connect),
    {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io",
    },
    "GET",
  );
  assert.ok(upgraded);
  assert.equal(headers["sec-websocket-protocol"], "SPDY/3.1+portforward.k8s.io");
  const client = spdyClient(binaryMessages(upgraded));
  const content = randomBytes(1 << 20);
  const echoed = await Promise.all(
    ["1", "2", "3"].map(async (requestid) => {
      const about = { port: "80", requestid };
      const error = await client.open({ streamtype: "error", ...about });
      const data = await client.open({ streamtype: "data", ...about });
      const hash = createHash("sha256");
      data.onData = (part) => hash.update(part);
      for (let at = 0; at < content.length; at += 1 << 15) await data.write(content.subarray(at, at + (1 << 15)));
      await data.end();
      await data.text;
      assert.equal(await error.text, "");
      return hash.digest("hex");
    }),
  );
  const expected = createHash("sha256").update(content).digest("hex");
  assert.deepEqual(echoed, [expected, expected, expected]);
  upgraded.destroy();
});

function littleEndian(port: number): Buffer {
  return Buffer.from([port & 0xff, port >> 8]);
}
