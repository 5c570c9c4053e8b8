import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test, type TestContext } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { relayForwards } from "../../../src/streams/port-forward.ts";
import { SpdyClient } from "../../../src/streams/spdy/client.ts";
import { SpdyConnection } from "../../../src/streams/spdy/connection.ts";
import type { SpdyStream } from "../../../src/streams/spdy/stream.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import { never } from "../../fakes/signals.ts";

const settle = () => new Promise((resolve) => setTimeout(resolve, 20));

/** A runtime's streaming server, and a connection that a client forwards through it. */
async function start(t: TestContext) {
  const clock = fakeClock();
  const [near, far] = connectionPair();
  const opened = new Map<string, SpdyStream>();
  const server = new SpdyConnection({
    socket: far,
    clock,
    handler: {
      accepts: () => Promise.resolve(true),
      onOpened: (stream) => void opened.set(stream.headers.get("streamtype") ?? "", stream.resume()),
    },
  });
  const runtime = new SpdyClient(near);
  t.after(async () => {
    runtime.close();
    await server.close();
  });
  const [data, client] = duplexPair();
  client.on("error", () => undefined).resume();
  const errors: string[] = [];
  const forward = relayForwards(runtime, clock);
  const done = forward({ port: 9, data, gone: never, onError: (text) => errors.push(text) });
  done.catch(() => undefined);
  await settle();
  const streamOf = (type: string) => opened.get(type) ?? assert.fail(`there is no ${type} stream`);
  return { clock, data, done, errors, remote: { data: streamOf("data"), error: streamOf("error") } };
}

test("a client that aborts a connection whose data has ended gets the message that the runtime sends afterwards", async (t) => {
  const { data, done, errors, remote } = await start(t);
  remote.data.end();
  await settle();
  data.destroy(new CodedError("cancelled", "the client reset the stream"));
  await settle();
  assert.deepEqual(errors, []);
  remote.error.end("failed to connect to localhost:9: connection refused");
  await assert.rejects(done);
  assert.deepEqual(errors, ["failed to connect to localhost:9: connection refused"]);
});

test("the wait for a message that the runtime does not send ends after five seconds", async (t) => {
  const { clock, data, done, errors, remote } = await start(t);
  remote.data.end();
  await settle();
  data.destroy(new CodedError("cancelled", "the client reset the stream"));
  await settle();
  await clock.advance(5_000);
  await assert.rejects(done);
  assert.deepEqual(errors, []);
});

test("a connection that the client aborts while the pod may still send ends at once", async (t) => {
  const { data, done } = await start(t);
  data.destroy(new CodedError("cancelled", "the client reset the stream"));
  await assert.rejects(done);
});
