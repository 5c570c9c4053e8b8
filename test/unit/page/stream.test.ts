import assert from "node:assert/strict";
import { once } from "node:events";
import { type Server, type ServerResponse, createServer } from "node:http";
import { type AddressInfo, type Socket, connect } from "node:net";
import { test } from "node:test";
import type { FeedSubscriber } from "../../../src/page/feed.ts";
import { serveFeed } from "../../../src/page/stream.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";

interface Open extends AsyncDisposable {
  readonly clock: FakeClock;
  readonly listener: FeedSubscriber;
  readonly response: ServerResponse;
  readonly reader: Socket;
  /** True while the feed has a subscriber. */
  readonly isListening: () => boolean;
}

/** An open page, with a real server, that reads nothing until its socket is resumed. */
async function openPage(): Promise<Open> {
  const clock = fakeClock();
  let listener: FeedSubscriber | undefined;
  const feed = {
    subscribe(heard: FeedSubscriber) {
      listener = heard;
      return () => void (listener = undefined);
    },
  };
  const responses: ServerResponse[] = [];
  const server: Server = createServer((_request, response) => {
    responses.push(response);
    serveFeed(response, { feed: { ...feed, name: "feed", run: async () => {} }, viewer, clock, stopped });
  });
  const stopped = never;
  const viewer = { maySee: () => true, maySeeFleet: false };
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const reader = connect((server.address() as AddressInfo).port, "127.0.0.1");
  reader.on("error", () => undefined);
  reader.pause();
  reader.write("GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await once(server, "request");
  const [response] = responses;
  if (!listener || !response) throw new Error("nobody listens");
  return {
    clock,
    listener,
    response,
    reader,
    isListening: () => listener !== undefined,
    async [Symbol.asyncDispose]() {
      reader.destroy();
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

const message = (number: number) => JSON.stringify({ number, padding: "x".repeat(100_000) });

test("disconnects a client that does not read within the maximum time", {
  timeout: 20_000,
}, async () => {
  await using page = await openPage();
  for (let n = 0; n < 100; n++) page.listener.send(message(n), `pods ${n}`);
  const closed = once(page.response, "close");
  await page.clock.advance(600_000);
  assert.ok(!page.isListening());
  page.listener.send(message(0), "pods 0");
  page.response.emit("drain");
  await page.clock.advance(5_000);
  await closed;
});

test("buffers one message in a slow client's connection, and keeps the newest of each kind", {
  timeout: 20_000,
}, async () => {
  await using page = await openPage();
  for (let n = 0; n < 1_000; n++) page.listener.send(message(n), `pods ${n % 2}`);
  assert.ok(page.response.writableLength < 500_000, `${page.response.writableLength} bytes`);
  let said = "";
  page.reader.on("data", (chunk: Buffer) => (said += chunk.toString()));
  page.reader.resume();
  while (!said.includes('"number":998') || !said.includes('"number":999')) await once(page.reader, "data");
  const numbers = [...said.matchAll(/"number":(\d+)/g)].map(([, number]) => Number(number));
  assert.ok(numbers.length < 100, `${numbers.length} messages`);
});

test("disconnects a client with too many queued notes", { timeout: 20_000 }, async () => {
  await using page = await openPage();
  const closed = once(page.response, "close");
  page.listener.send(message(0), "pods");
  for (let n = 0; n < 100; n++) page.listener.send(message(n));
  for (let n = 0; n < 600; n++) page.listener.send("{}");
  await closed;
  assert.ok(!page.isListening());
});
