import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex, PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import type { ConnectPort } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import type { SpdyClient } from "../../fakes/spdy-client.ts";
import { dialSpdy, startServer, until } from "./clients.ts";

const protocol = "portforward.k8s.io";

/** The two streams of a connection, as kubectl opens them. */
async function openPair(client: SpdyClient, port: number, requestid: string) {
  const error = await client.open({ streamtype: "error", port: String(port), requestid });
  await error.end();
  const data = await client.open({ streamtype: "data", port: String(port), requestid });
  return { error, data };
}

/** A pod whose servers send their port and then echo until the client has ended. */
const echoing: ConnectPort = (port) => {
  const [near, far] = connectionPair();
  far.on("error", () => undefined);
  far.write(`${port}:`);
  far.pipe(far);
  return Promise.resolve(near);
};

test("forwards many concurrent connections, each to its port, with independent ends", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.portForward([], echoing), protocol);
  const pairs = await Promise.all(
    Array.from({ length: 20 }, (_, index) => openPair(client, 8000 + index, String(index))),
  );
  for (const [index, { data }] of pairs.entries()) await data.write(`hello ${index}`);
  for (const { data } of pairs.toReversed()) await data.end();
  for (const [index, { data, error }] of pairs.entries()) {
    assert.equal(await data.text, `${8000 + index}:hello ${index}`);
    assert.equal(await error.text, "");
  }
  const again = await openPair(client, 9000, "0");
  await again.data.end();
  assert.equal(await again.data.text, "9000:", "a request id may be used again");
  client.socket.destroy();
});

test("either side may end its direction first", async () => {
  await using server = startServer();
  const heard = Promise.withResolvers<string>();
  const endsFirst: ConnectPort = () => {
    const [near, far] = connectionPair();
    far.end("I am done");
    heard.resolve(text(far));
    return Promise.resolve(near);
  };
  const client = await dialSpdy(server.portForward([], endsFirst), protocol);
  const { data, error } = await openPair(client, 80, "1");
  assert.equal(await data.text, "I am done");
  await data.write("I am not");
  await data.end();
  assert.equal(await heard.promise, "I am not");
  assert.equal(await error.text, "");
  client.socket.destroy();
});

test("reports a failed connection on its error stream while the others continue", async () => {
  await using server = startServer();
  const connect: ConnectPort = (port, signal) =>
    port === 1 ? Promise.reject(new CodedError("unavailable", "connection refused")) : echoing(port, signal);
  const client = await dialSpdy(server.portForward([], connect), protocol);
  const good = await openPair(client, 2, "1");
  const bad = await openPair(client, 1, "2");
  assert.equal(await bad.error.text, "error forwarding port 1: connection refused");
  await bad.data.text;
  assert.equal(bad.data.isReset(), true);
  await good.data.end();
  assert.equal(await good.data.text, "2:");
  client.socket.destroy();
});

test("reports a connection that breaks before sending anything as an error; later it is only closed", async () => {
  await using server = startServer();
  const broken = () => new CodedError("unavailable", "reset by peer");
  const connect: ConnectPort = (port) => {
    const remote = new PassThrough();
    if (port === 1) setImmediate(() => remote.destroy(broken()));
    else {
      const far = new Duplex({
        read() {
          this.push("some words");
          setImmediate(() => this.destroy(broken()));
        },
        write: (_chunk, _encoding, done) => done(),
      });
      return Promise.resolve(far);
    }
    return Promise.resolve(remote);
  };
  const client = await dialSpdy(server.portForward([], connect), protocol);
  const mute = await openPair(client, 1, "1");
  assert.equal(await mute.error.text, "error forwarding port 1: reset by peer");
  const late = await openPair(client, 2, "2");
  assert.match(await late.data.text, /^some words/);
  assert.equal(late.data.isReset(), true);
  assert.equal(await late.error.text, "");
  client.socket.destroy();
});

test("closes only the connection whose data stream the client resets", async () => {
  await using server = startServer();
  const remotes: Duplex[] = [];
  const connect: ConnectPort = async (port, signal) => {
    const remote = await echoing(port, signal);
    remotes.push(remote);
    return remote;
  };
  const client = await dialSpdy(server.portForward([], connect), protocol);
  const kept = await openPair(client, 1, "1");
  const cut = await openPair(client, 2, "2");
  await until(() => remotes.length === 2);
  await cut.data.reset();
  assert.equal(await cut.error.text, "");
  const [keptRemote, cutRemote] = remotes;
  await until(() => cutRemote?.destroyed === true);
  assert.equal(keptRemote?.destroyed, false);
  await kept.data.end();
  assert.equal(await kept.data.text, "1:");
  client.socket.destroy();
});

test("closes all connections, including pending ones, when the client disconnects", async () => {
  await using server = startServer();
  const seen: string[] = [];
  const connect: ConnectPort = async (port, signal) => {
    if (port === 1) {
      await once(signal, "abort");
      seen.push("under way");
      throw new Error("given up");
    }
    const remote = await echoing(port, signal);
    remote.once("close", () => seen.push("standing"));
    return remote;
  };
  const client = await dialSpdy(server.portForward([], connect), protocol);
  await openPair(client, 1, "1");
  await openPair(client, 2, "2");
  client.socket.end();
  await until(() => seen.length === 2);
  assert.deepEqual(seen.sort(), ["standing", "under way"]);
  client.socket.destroy();
});

test("pairs consecutive streams of clients that send no request ID", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.portForward([], echoing), protocol);
  for (const port of ["81", "82"]) {
    const error = await client.open({ streamtype: "error", port });
    const data = await client.open({ streamtype: "data", port });
    await data.end();
    assert.equal(await data.text, `${port}:`);
    assert.equal(await error.text, "");
  }
  client.socket.destroy();
});

test("refuses streams without a port or type, and a second stream of the same type", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.portForward([], echoing), protocol);
  for (const headers of [
    { streamtype: "data" },
    { streamtype: "data", port: "0" },
    { streamtype: "data", port: "65536" },
    { streamtype: "data", port: "80x" },
    { streamtype: "stdin", port: "80" },
    { port: "80" },
    { streamtype: "error", port: "80", requestid: "x".repeat(257) },
  ] as Record<string, string>[])
    await assert.rejects(client.open(headers), /stream reset/, JSON.stringify(headers));
  const headers = { streamtype: "error", port: "80", requestid: "1" };
  await client.open(headers);
  await assert.rejects(client.open(headers), /stream reset/);
  client.socket.destroy();
});

test("discards an incomplete pair at once when its client resets it", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const client = await dialSpdy(server.portForward([], echoing), protocol);
  await until(() => clock.pending === 1);
  for (let round = 0; round < 600; round++)
    for (const streamtype of ["error", "data"])
      await (await client.open({ streamtype, port: "80", requestid: `${streamtype} ${round}` })).reset();
  const { data } = await openPair(client, 80, "1");
  await until(() => clock.pending === 1);
  await data.end();
  assert.equal(await data.text, "80:");
  client.socket.destroy();
});

test("discards an incomplete pair after 30 s", async () => {
  const clock = fakeClock();
  await using server = startServer(clock);
  const client = await dialSpdy(server.portForward([], echoing), protocol);
  const error = await client.open({ streamtype: "error", port: "80", requestid: "1" });
  const data = await client.open({ streamtype: "data", port: "80", requestid: "2" });
  await clock.advance(30_000);
  assert.equal(await error.text, "timed out waiting for streams");
  await data.text;
  assert.equal(data.isReset(), true);
  client.socket.destroy();
  await until(() => clock.pending === 0);
});
