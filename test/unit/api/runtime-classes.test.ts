import assert from "node:assert/strict";
import { test } from "node:test";
import { createRuntimeClasses } from "../../../src/api/runtime-classes.ts";
import { apiError } from "../../../src/api/api-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { fakeClient, settle, silent, type WatchFeed, watchFeed } from "./fake-client.ts";

const classOf = (name: string, handler: string, uid = "u") => ({
  metadata: { name, uid, resourceVersion: "7" },
  handler,
});

/** A server with the class `kata`, while it is up. */
function start({ up = true } = {}) {
  const clock = fakeClock();
  const stop = new AbortController();
  const feeds: WatchFeed[] = [];
  const client = fakeClient((call, signal) => {
    if (!up) throw apiError(503, "");
    if (call.verb === "list") return { metadata: { resourceVersion: "5" }, items: [classOf("kata", "kata-qemu")] };
    const feed = watchFeed(signal);
    feeds.push(feed);
    return feed;
  });
  const classes = createRuntimeClasses({ client, clock, log: silent });
  const running = classes.run(stop.signal);
  return {
    clock,
    client,
    feeds,
    handler: (name: string) => classes.handler(name, never),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}

test("starts a single watch when the first pod names a RuntimeClass", async () => {
  await using rig = start();
  await settle();
  assert.equal(rig.client.calls.length, 0);
  assert.equal(await rig.handler("kata"), "kata-qemu");
  assert.equal(await rig.handler("kata"), "kata-qemu");
  await settle();
  assert.deepEqual(
    rig.client.calls.map(({ verb, path }) => `${verb} ${path}`),
    ["list /apis/node.k8s.io/v1/runtimeclasses", "watch /apis/node.k8s.io/v1/runtimeclasses"],
  );
});

test("reports a missing class with the kubelet's message, and follows classes that are added, deleted or recreated", async () => {
  await using rig = start();
  await assert.rejects(rig.handler("secure"), { message: 'runtimeclass.node.k8s.io "secure" not found' });
  await settle();
  rig.feeds[0]?.send("ADDED", classOf("secure", "runsc", "a"));
  await settle();
  assert.equal(await rig.handler("secure"), "runsc");
  rig.feeds[0]?.send("DELETED", classOf("secure", "runsc", "a"));
  await settle();
  await assert.rejects(rig.handler("secure"), /not found/);
  rig.feeds[0]?.send("ADDED", classOf("secure", "kata", "b"));
  await settle();
  assert.equal(await rig.handler("secure"), "kata");
});

test("fails after a while if the API server does not list runtime classes", async () => {
  await using rig = start({ up: false });
  const asked = rig.handler("kata");
  const refused = assert.rejects(asked, {
    message: "failed to lookup RuntimeClass kata: the API server has not listed the runtime classes yet",
  });
  await settle();
  await rig.clock.advance(10_000);
  await refused;
});
