import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createSharedWatches } from "../../../src/api/shared-watches.ts";
import type { Service } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, settle, silent, type WatchFeed, watchFeed } from "./fake-client.ts";

const collection = { path: "/api/v1/services", fieldSelector: "spec.clusterIP!=None" };
const cluster = { name: "one", server: "https://10.0.0.1", skipTLSVerify: false };
const service = (name: string, resourceVersion: string) => ({
  metadata: { name, namespace: "shop", uid: name, resourceVersion },
});

/** Nodes that have a collection in common, each with a client of its own. */
function start(t: TestContext) {
  const clock = fakeClock();
  const watches = createSharedWatches({ clock, log: silent });
  const stops: AbortController[] = [];
  const running: Promise<void>[] = [];
  t.after(async () => {
    for (const stop of stops) stop.abort();
    await clock.advance(60_000);
    await Promise.all(running);
  });
  return {
    clock,
    join(of: typeof cluster = cluster, isRefused = false) {
      const feeds: WatchFeed[] = [];
      const client = fakeClient(({ verb }, signal) => {
        if (isRefused) throw apiError(403, "forbidden");
        if (verb === "list") return { items: [service("web", "1")], metadata: { resourceVersion: "5" } };
        const feed = watchFeed(signal);
        feeds.push(feed);
        return feed;
      });
      const watch = watches.openWith(of, client)<Service>(collection);
      let changes = 0;
      watch.onChange(() => (changes += 1));
      const stop = new AbortController();
      stops.push(stop);
      return {
        names: () => watch.list().map(({ metadata }) => metadata.name),
        asked: () => client.calls.map(({ verb, query }) => `${verb} ${query["resourceVersion"]}`),
        changes: () => changes,
        feed: () => feeds.at(-1) ?? assert.fail("there is no watch"),
        run() {
          running.push(watch.run(stop.signal));
          return settle();
        },
        stop() {
          stop.abort();
          return settle();
        },
      };
    },
  };
}

test("nodes of a cluster list and watch a collection once, and all see its changes", async (t) => {
  const { join } = start(t);
  const [one, other] = [join(), join({ ...cluster, name: "other-name" })];
  await one.run();
  await other.run();
  assert.deepEqual(one.asked(), ["list 0", "watch 5"]);
  assert.deepEqual(other.asked(), []);
  one.feed().send("ADDED", service("db", "6"));
  await settle();
  assert.deepEqual(one.names(), ["web", "db"]);
  assert.deepEqual(other.names(), ["web", "db"]);
  assert.equal(other.changes(), one.changes());
});

test("a node that joins later hears of what others have listed, and a stopped one hears of nothing more", async (t) => {
  const { join } = start(t);
  const [one, other] = [join(), join()];
  await one.run();
  assert.equal(other.changes(), 0);
  await other.run();
  assert.equal(other.changes(), 1);
  await other.stop();
  one.feed().send("ADDED", service("db", "6"));
  await settle();
  assert.equal(one.changes(), 2);
  assert.equal(other.changes(), 1);
});

test("nodes of different clusters share nothing", async (t) => {
  const { join } = start(t);
  const [one, other] = [join(), join({ ...cluster, server: "https://10.0.0.2" })];
  await one.run();
  await other.run();
  assert.deepEqual(other.asked(), ["list 0", "watch 5"]);
});

test("when the node that asks stops, the next one continues from the same version without another list", async (t) => {
  const { join } = start(t);
  const [one, other] = [join(), join()];
  await one.run();
  await other.run();
  one.feed().send("ADDED", service("db", "6"));
  await settle();
  await one.stop();
  assert.deepEqual(other.asked(), ["watch 6"]);
  assert.deepEqual(other.names(), ["web", "db"]);
  other.feed().send("DELETED", service("db", "7"));
  await settle();
  assert.deepEqual(other.names(), ["web"]);
});

test("a node that is refused does not keep the others from the collection", async (t) => {
  const { clock, join } = start(t);
  const [one, other] = [join(cluster, true), join()];
  await one.run();
  await other.run();
  assert.deepEqual(other.names(), []);
  await clock.advance(5_000);
  assert.deepEqual(other.names(), ["web"]);
});

test("a node that starts after all others have stopped lists again", async (t) => {
  const { join } = start(t);
  const one = join();
  await one.run();
  await one.stop();
  const late = join();
  assert.deepEqual(late.names(), []);
  await late.run();
  assert.deepEqual(late.asked(), ["list 0", "watch 5"]);
});
