import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createObjectCaches } from "../../../src/api/objects.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient, settle, silent, type WatchFeed, watchFeed } from "./fake-client.ts";
import { pod } from "./pods.ts";

const secret = (resourceVersion: string, more: object = {}) => ({
  metadata: { name: "s", namespace: "ns", uid: "u", resourceVersion },
  data: { v: resourceVersion },
  ...more,
});
const wanting = (name: string) => pod(name, { volumes: [{ name: "v", secret: { secretName: "s" } }] });
const notFound = () => {
  throw apiError(404, "");
};

/** A server with secret `s` while `stored` is set. */
function start(
  stored: object | undefined,
  options: { listing?: () => Promise<never>; getting?: (feed: WatchFeed | undefined) => Promise<void> } = {},
) {
  const clock = fakeClock();
  const stop = new AbortController();
  const feeds: WatchFeed[] = [];
  const aborted: boolean[] = [];
  let now = stored;
  const client = fakeClient((call, signal) => {
    if (call.verb === "list")
      return options.listing ? options.listing() : { metadata: { resourceVersion: "5" }, items: now ? [now] : [] };
    if (call.verb === "get") {
      const answer = now;
      return (options.getting?.(feeds[0]) ?? Promise.resolve()).then(() => answer ?? notFound());
    }
    const feed = watchFeed(signal);
    const index = feeds.push(feed) - 1;
    signal.addEventListener("abort", () => (aborted[index] = true));
    return feed;
  });
  const caches = createObjectCaches({ client, clock, log: silent });
  const running = caches.run(stop.signal);
  const changes: string[] = [];
  caches.onChange((...what) => changes.push(what.join("/")));
  return {
    clock,
    caches,
    changes,
    feeds,
    aborted,
    store: (object: object | undefined) => void (now = object),
    count: (verb: Call["verb"]) => client.calls.filter((call) => call.verb === verb).length,
    calls: client.calls,
    read: () => caches.secret("ns", "s", never),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(60_000);
      await running;
    },
  };
}

test("shares one watch between all pods and reads of an object", async () => {
  await using t = start(secret("1"));
  t.caches.register(wanting("a"));
  t.caches.register(wanting("b"));
  assert.deepEqual((await t.read()).data, { v: "1" });
  await t.read();
  assert.equal(t.count("list"), 1);
  assert.equal(t.count("get"), 0);
  assert.equal(t.calls[0]?.path, "/api/v1/namespaces/ns/secrets");
  assert.equal(t.calls[0]?.query["fieldSelector"], "metadata.name=s");
});

test("ends the watch when the last pod that references the object is gone", async () => {
  await using t = start(secret("1"));
  t.caches.register(wanting("a"));
  t.caches.register(wanting("b"));
  await t.read();
  t.caches.unregister("a-uid");
  await settle();
  assert.deepEqual(t.aborted, []);
  t.caches.unregister("b-uid");
  await settle();
  assert.deepEqual(t.aborted, [true]);
  await t.read();
  assert.equal(t.count("get"), 1, "without a watch a read asks the server");
});

test("stops watching objects that a changed pod no longer references", async () => {
  await using t = start(secret("1"));
  t.caches.register(wanting("a"));
  await t.read();
  t.caches.register(pod("a"));
  await settle();
  assert.deepEqual(t.aborted, [true]);
});

test("reports changes only of objects that have been read", async () => {
  await using t = start(secret("1"));
  t.caches.register(wanting("a"));
  await settle();
  t.feeds[0]?.send("MODIFIED", secret("2"));
  await settle();
  assert.deepEqual(t.changes, [], "nobody has read it yet");
  assert.deepEqual((await t.read()).data, { v: "2" });
  t.feeds[0]?.send("MODIFIED", secret("3"));
  await settle();
  assert.deepEqual(t.changes, ["secret/ns/s"]);
  assert.deepEqual((await t.read()).data, { v: "3" });
});

test("reports a missing object with the kubelet's message, and reports a change when it appears", async () => {
  await using t = start(undefined);
  t.caches.register(wanting("a"));
  await assert.rejects(t.read(), { code: "not_found", message: 'secret "s" not found' });
  await assert.rejects(t.caches.configMap("ns", "c", never), {
    message: 'configmap "c" not found',
  });
  t.feeds[0]?.send("ADDED", secret("7"));
  await settle();
  assert.deepEqual(t.changes, ["secret/ns/s"]);
});

test("reports a change if the watch delivers an object while the server responds that it does not exist", async () => {
  await using t = start(undefined, {
    getting: async (feed) => {
      feed?.send("ADDED", secret("7"));
      await settle();
    },
  });
  t.caches.register(wanting("a"));
  await assert.rejects(t.read(), { code: "not_found" });
  assert.deepEqual(t.changes, ["secret/ns/s"]);
  assert.deepEqual((await t.read()).data, { v: "7" });
});

test("asks the server before treating an object as missing", async () => {
  await using t = start(undefined);
  t.caches.register(wanting("a"));
  await settle();
  t.store(secret("9"));
  assert.deepEqual((await t.read()).data, { v: "9" });
});

test("a read waits one second for the watch's first response before it sends its own request", async () => {
  await using t = start(secret("1"), { listing: () => Promise.reject(new CodedError("permission_denied", "not yet")) });
  t.caches.register(wanting("a"));
  const reading = t.read();
  await t.clock.advance(900);
  assert.equal(t.count("get"), 0);
  await t.clock.advance(200);
  assert.deepEqual((await reading).data, { v: "1" });
});

test("stops watching an immutable object after the first read", async () => {
  await using t = start(secret("1", { immutable: true }));
  t.caches.register(wanting("a"));
  await t.read();
  await t.clock.advance(700_000);
  assert.deepEqual((await t.read()).data, { v: "1" });
  assert.equal(t.count("list"), 1);
  assert.equal(t.count("get"), 0);
  assert.ok(t.count("watch") <= 1);
});
