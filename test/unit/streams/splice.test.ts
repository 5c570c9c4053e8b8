import assert from "node:assert/strict";
import { once } from "node:events";
import { type Socket, connect, createServer } from "node:net";
import { Duplex, Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import { splice } from "../../../src/streams/port-forward.ts";
import { never } from "../../fakes/signals.ts";

/** Both ends of a TCP connection over loopback. */
async function pair(): Promise<{ near: Socket; far: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address);
  const near = connect({ port: address.port, host: "127.0.0.1", allowHalfOpen: true });
  const [far] = (await once(server, "connection")) as [Socket];
  await once(near, "connect");
  server.close();
  return { near, far };
}

async function readAll(stream: Readable): Promise<string> {
  const parts: Buffer[] = [];
  stream.on("data", (part: Buffer) => parts.push(part));
  await once(stream, "end");
  return Buffer.concat(parts).toString();
}

test("forwards both directions and passes each end on as a half-close", async () => {
  const [client, backend] = [await pair(), await pair()];
  const joined = splice(client.far, backend.near, never);
  client.near.end("question");
  assert.equal(await readAll(backend.far), "question");
  backend.far.end("answer, given after the question's end");
  assert.equal(await readAll(client.near), "answer, given after the question's end");
  await joined;
  assert.ok(client.far.destroyed && backend.near.destroyed);
});

test("a reset on one side closes both", async () => {
  const [client, backend] = [await pair(), await pair()];
  const joined = splice(client.far, backend.near, never);
  client.near.resetAndDestroy();
  await assert.rejects(joined);
  assert.ok(client.far.destroyed && backend.near.destroyed);
  await once(backend.far.resume(), "end");
  backend.far.destroy();
});

test("aborting closes both sides", async () => {
  const [client, backend] = [await pair(), await pair()];
  const stop = new AbortController();
  const joined = splice(client.far, backend.near, stop.signal);
  stop.abort();
  await assert.rejects(joined, { name: "AbortError" });
  assert.ok(client.far.destroyed && backend.near.destroyed);
  client.near.destroy();
  backend.far.destroy();
});

test("backpressure: a slow reader stops the writer, and at most the windows are buffered", async () => {
  let pulled = 0;
  const chunk = Buffer.alloc(16 * 1024);
  const eager = new Duplex({
    read() {
      pulled += chunk.length;
      setImmediate(() => this.push(chunk));
    },
    write: (_part, _encoding, done) => done(),
  });
  const stuck = new Duplex({ read() {}, write() {} });
  const stop = new AbortController();
  const joined = splice(eager, stuck, stop.signal);
  for (let turn = 0; turn < 1000; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(pulled > 0 && pulled <= 512 * 1024, `pulled ${pulled}`);
  stop.abort();
  await assert.rejects(joined);
});

test("forwards 256 MiB in bounded memory", async () => {
  const [client, backend] = [await pair(), await pair()];
  const joined = splice(client.far, backend.near, never);
  const total = 256 * 1024 * 1024;
  const chunk = Buffer.alloc(256 * 1024, 7);
  let left = total;
  const source = new Readable({
    read() {
      left -= chunk.length;
      this.push(left < 0 ? null : chunk);
    },
  });
  /** Bytes on their way; the process's memory would also count what is yet to be collected. */
  let [received, most] = [0, 0];
  const sink = new Writable({
    write(part: Buffer, _encoding, done) {
      received += part.length;
      most = Math.max(most, total - left - received);
      done();
    },
  });
  backend.far.end();
  await Promise.all([pipeline(source, client.near), pipeline(backend.far, sink)]);
  client.near.resume();
  await joined;
  assert.equal(received, total);
  assert.ok(most < 32 * 1024 * 1024, `${most} bytes on their way`);
});

test("delivers data that a side sent before it closed, even if it is written to afterwards", async () => {
  const client = await pair();
  const bytes = 8 << 20;
  let left = bytes;
  const backend = new Duplex({
    read() {
      const size = Math.min(left, 64 << 10);
      left -= size;
      this.push(size > 0 ? Buffer.alloc(size) : null);
    },
    write: (_chunk, _encoding, done) => done(new Error("it has closed")),
  });
  const joined = splice(client.far, backend, never);
  let got = 0;
  client.near.on("data", (part: Buffer) => {
    got += part.length;
    if (backend.readableEnded) return;
    // Slowly, so that the end is still in transit when the client writes.
    client.near.pause();
    setImmediate(() => client.near.resume());
  });
  await once(backend, "end");
  client.near.pause();
  client.near.write("ping");
  await once(backend, "error");
  client.near.resume();
  await once(client.near, "end");
  assert.equal(got, bytes);
  client.near.end();
  await joined;
});
