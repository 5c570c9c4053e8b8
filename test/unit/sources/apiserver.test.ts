import assert from "node:assert/strict";
import { test } from "node:test";
import { createApiServerSource } from "../../../src/sources/apiserver.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, settle, silent, type WatchFeed, watchFeed } from "../api/fake-client.ts";
import { pod } from "../api/pods.ts";

test("emits the complete set of the node's pods once its Node has been read", async () => {
  const feeds: WatchFeed[] = [];
  const client = fakeClient((call, signal) => {
    if (call.verb === "list") return { metadata: { resourceVersion: "1" }, items: [pod("a")] };
    const feed = watchFeed(signal);
    feeds.push(feed);
    return feed;
  });
  const sets: string[][] = [];
  const nodeRead = Promise.withResolvers<void>();
  const source = createApiServerSource({
    client,
    clock: fakeClock(),
    log: silent,
    nodeName: "n1",
    set: (pods) => sets.push(pods.map(({ metadata }) => metadata.uid)),
    after: () => nodeRead.promise,
  });
  const stop = new AbortController();
  const running = source.run(stop.signal);
  await settle();
  assert.equal(client.calls.length, 0);
  nodeRead.resolve();
  await settle();
  assert.equal(client.calls[0]?.path, "/api/v1/pods");
  assert.equal(client.calls[0]?.query["fieldSelector"], "spec.nodeName=n1");
  feeds[0]?.send("ADDED", pod("b"));
  feeds[0]?.send("MODIFIED", pod("a", {}, { uid: "another" }));
  feeds[0]?.send("DELETED", pod("b"));
  await settle();
  assert.deepEqual(sets, [["a-uid"], ["a-uid", "b-uid"], ["another", "b-uid"], ["another"]]);
  stop.abort();
  await running;
});
