import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createReflector } from "../../../src/api/reflector.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient, settle, silent, type WatchFeed, watchFeed } from "./fake-client.ts";

interface Thing {
  metadata: { name: string; namespace: string; uid: string; resourceVersion: string; managedFields?: [] };
}

const thing = (name: string, uid: string, resourceVersion: string): Thing => ({
  metadata: { name, namespace: "ns", uid, resourceVersion },
});

/** A reflector for a server whose lists are `lists` in order and whose watches are controlled by the test. */
function start(lists: readonly (() => unknown)[]) {
  const clock = fakeClock();
  const stop = new AbortController();
  const said: string[] = [];
  const feeds: WatchFeed[] = [];
  let watches = (feed: WatchFeed): unknown => feed;
  let listed = 0;
  const client = fakeClient((call, signal) => {
    if (call.verb === "list") return untilAborted(Promise.resolve(lists[listed++]?.()), signal);
    const feed = watchFeed(signal);
    feeds.push(feed);
    return watches(feed);
  });
  const handler = {
    replace: (all: readonly Thing[]) => said.push(`replace ${all.map(({ metadata }) => metadata.uid).join(",")}`),
    changed: ({ metadata }: Thing, type: string) => said.push(`${type} ${metadata.uid}`),
  };
  const reflector = createReflector<Thing>({
    client,
    clock,
    log: silent,
    path: "/things",
    fieldSelector: "a=b",
    handler,
  });
  const running = reflector.run(stop.signal);
  return {
    clock,
    client,
    reflector,
    said,
    feed: (index: number) => feeds[index] ?? assert.fail(`no watch ${index}`),
    setWatches: (fn: (feed: WatchFeed) => unknown) => void (watches = fn),
    queries: (verb: Call["verb"]) => client.calls.filter((call) => call.verb === verb).map((call) => call.query),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(60_000);
      await running;
    },
  };
}

const page =
  (resourceVersion: string, ...items: Thing[]) =>
  () => ({ metadata: { resourceVersion }, items });

test("lists from the cache, then watches from there and delivers changes", async () => {
  await using t = start([page("10", thing("a", "a1", "3"))]);
  await settle();
  assert.deepEqual(t.queries("list"), [
    { fieldSelector: "a=b", labelSelector: undefined, resourceVersion: "0", limit: 500 },
  ]);
  assert.equal(t.queries("watch")[0]?.["resourceVersion"], "10");
  assert.equal(t.queries("watch")[0]?.["allowWatchBookmarks"], true);
  t.feed(0).send("ADDED", thing("b", "b1", "11"));
  t.feed(0).send("MODIFIED", thing("a", "a1", "12"));
  t.feed(0).send("DELETED", thing("b", "b1", "13"));
  await settle();
  assert.deepEqual(t.said, ["replace a1", "added b1", "modified a1", "deleted b1"]);
  assert.equal(t.reflector.get("ns", "a")?.metadata.resourceVersion, "12");
  assert.equal(t.reflector.get("ns", "b"), undefined);
});

test("delivers a recreated object as deleted and added", async () => {
  await using t = start([page("10", thing("a", "a1", "3"))]);
  await settle();
  t.feed(0).send("MODIFIED", thing("a", "a2", "11"));
  await settle();
  assert.deepEqual(t.said.slice(1), ["deleted a1", "added a2"]);
});

test("resumes a broken watch within five seconds from the last version, including bookmarks", async () => {
  await using t = start([page("10")]);
  await settle();
  t.feed(0).send("ADDED", thing("a", "a1", "11"));
  t.feed(0).send("BOOKMARK", thing("", "", "20"));
  await settle();
  t.feed(0).end(new CodedError("unavailable", "cut"));
  await settle();
  t.setWatches(() => Promise.reject(new CodedError("unavailable", "refused")));
  await t.clock.advance(60_000);
  const before = t.queries("watch").length;
  assert.ok(before > 10, `tried ${before} times in a minute`);
  t.setWatches((feed) => feed);
  await t.clock.advance(5_000);
  assert.equal(t.queries("watch").length, before + 1);
  assert.equal(t.queries("watch").at(-1)?.["resourceVersion"], "20");
  assert.deepEqual(t.said, ["replace ", "added a1"], "no object is told twice");
});

test("lists the newest state again if the resource version is too old", async () => {
  await using t = start([page("10", thing("a", "a1", "3")), page("30", thing("b", "b1", "25"))]);
  await settle();
  await t.clock.advance(2_000);
  t.feed(0).end(apiError(410, "gone"));
  await settle();
  assert.equal(t.queries("list")[1]?.["resourceVersion"], undefined);
  assert.deepEqual(t.said, ["replace a1", "replace b1"]);
  assert.deepEqual(
    t.reflector.list().map(({ metadata }) => metadata.uid),
    ["b1"],
  );
  assert.equal(t.queries("watch").at(-1)?.["resourceVersion"], "30");
});

test("joins pages, and lists everything in one response if a continue token expires", async () => {
  const lists = [
    () => ({ metadata: { continue: "next" }, items: [thing("a", "a1", "1")] }),
    page("10", thing("b", "b1", "2")),
  ];
  await using t = start(lists);
  await settle();
  assert.deepEqual(t.said, ["replace a1,b1"]);
  assert.deepEqual(t.queries("list")[1], {
    fieldSelector: "a=b",
    labelSelector: undefined,
    limit: 500,
    continue: "next",
  });

  const expired = () => {
    throw apiError(410, "token expired");
  };
  await using u = start([
    () => ({ metadata: { continue: "next" }, items: [thing("a", "a1", "1")] }),
    expired,
    page("10", thing("c", "c1", "2")),
  ]);
  await settle();
  assert.deepEqual(u.said, ["replace c1"]);
});

test("does not keep retrying without delay if the server ends watches immediately", async () => {
  await using t = start([page("10")]);
  t.setWatches((feed) => {
    feed.end();
    return feed;
  });
  await t.clock.advance(10_000);
  const count = t.queries("watch").length;
  assert.ok(count >= 2 && count <= 12, `${count} watches in ten seconds`);
});

test("drops managedFields of objects", async () => {
  const heavy: Thing = { metadata: { ...thing("a", "a1", "1").metadata, managedFields: [] } };
  await using t = start([() => ({ metadata: { resourceVersion: "10" }, items: [heavy] })]);
  await settle();
  assert.equal("managedFields" in (t.reflector.get("ns", "a")?.metadata ?? assert.fail("no object")), false);
});

test("ready waits for the first list, even if earlier lists fail", async () => {
  let down = true;
  const list = () => {
    if (down) throw new CodedError("unavailable", "refused");
    return page("10")();
  };
  await using t = start([list, list, list, list]);
  let ready = false;
  void t.reflector.ready(never).then(() => (ready = true));
  await t.clock.advance(1_000);
  assert.equal(ready, false);
  down = false;
  await t.clock.advance(5_000);
  assert.equal(ready, true);
  assert.equal(t.reflector.synced(), true);
});

test("repeats a request whose response was lost, with a growing timeout", async () => {
  const never = () => new Promise<never>(() => undefined);
  await using t = start([never, never, page("10", thing("a", "a1", "3"))]);
  await t.clock.advance(15_000);
  assert.equal(t.queries("list").length, 1, "the deadline is in force");
  await t.clock.advance(5_000);
  assert.equal(t.queries("list").length, 2);
  await t.clock.advance(25_000);
  assert.equal(t.queries("list").length, 2);
  await t.clock.advance(6_000);
  assert.deepEqual(t.said, ["replace a1"]);
});

test("retries within seconds if a restarted server refuses requests, and backs off if it keeps refusing", async () => {
  const away = () => {
    throw new CodedError("unavailable", "refused");
  };
  const forbidden = () => {
    throw apiError(403, "not yet");
  };
  const count = (times: number, list: () => unknown) => Array.from({ length: times }, () => list);
  await using t = start([...count(20, away), ...count(2, forbidden), page("10", thing("a", "a1", "3"))]);
  while (t.queries("list").length < 21) await t.clock.advance(100);
  await t.clock.advance(6_000);
  assert.deepEqual(t.said, ["replace a1"]);

  await using u = start(count(100, forbidden));
  await u.clock.advance(120_000);
  const before = u.queries("list").length;
  await u.clock.advance(60_000);
  assert.ok(u.queries("list").length - before <= 5, "it is not hammered");
});

test("waits as long as the server's Retry-After header says", async () => {
  const busy = () => {
    throw apiError(429, "busy", "9");
  };
  await using t = start([busy, page("10")]);
  await t.clock.advance(8_900);
  assert.equal(t.queries("list").length, 1);
  await t.clock.advance(200);
  assert.equal(t.queries("list").length, 2);
});
