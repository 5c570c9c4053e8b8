import assert from "node:assert/strict";
import { test } from "node:test";
import { createLimitUpdates } from "../../../src/csi/limit-updates.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { CSIDriver } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, settle, silent, type WatchFeed, watchFeed } from "../api/fake-client.ts";

const about = (name: string, seconds?: number): CSIDriver => ({
  metadata: { name, uid: "u", resourceVersion: "7" },
  spec: { ...(seconds !== undefined && { nodeAllocatableUpdatePeriodSeconds: seconds }) },
});

/** Cluster with the CSIDriver `d`. @param seconds its update period. */
function start(seconds?: number) {
  const clock = fakeClock();
  const stop = new AbortController();
  const feeds: WatchFeed[] = [];
  const asked: string[] = [];
  const appeared: string[] = [];
  const world = { failure: undefined as Error | undefined };
  const client = fakeClient((call, signal) => {
    if (call.verb === "list") return { metadata: { resourceVersion: "5" }, items: [about("d", seconds)] };
    const feed = watchFeed(signal);
    feeds.push(feed);
    return feed;
  });
  const updates = createLimitUpdates({
    client,
    clock,
    log: silent,
    async refreshLimit(driver) {
      asked.push(`${driver} ${clock.monotonic() / 1000}`);
      if (world.failure) throw world.failure;
    },
    async onCSIDriver(driver) {
      appeared.push(driver);
    },
  });
  const running = updates.run(stop.signal);
  return {
    clock,
    client,
    updates,
    asked,
    appeared,
    world,
    told: (driver: CSIDriver) => feeds.at(-1)?.send("MODIFIED", driver),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}

test("reads a driver's volume limit periodically while the driver is registered, even after a failure", async () => {
  await using rig = start(10);
  const { clock, updates, asked, world, client } = rig;
  await settle();
  assert.equal(client.calls.length, 0);
  updates.addDriver("d");
  await clock.advance(20_000);
  world.failure = new CodedError("unavailable", "away");
  await clock.advance(10_000);
  world.failure = undefined;
  await clock.advance(10_000);
  assert.deepEqual(asked, ["d 10", "d 20", "d 30", "d 40"]);
  updates.removeDriver("d");
  await clock.advance(60_000);
  assert.equal(asked.length, 4);
  updates.addDriver("d");
  await clock.advance(10_000);
  assert.equal(asked.at(-1), "d 110");
});

test("skips drivers without an update period; applies added, changed and removed periods", async () => {
  await using rig = start();
  const { clock, updates, asked, told } = rig;
  updates.addDriver("d");
  await clock.advance(100_000);
  assert.deepEqual(asked, []);
  const waiting = clock.pending;
  told(about("d", 30));
  await clock.advance(30_000);
  told(about("d", 50));
  await clock.advance(50_000);
  assert.deepEqual(asked, ["d 130", "d 180"]);
  told(about("d"));
  told(about("other", 10));
  await clock.advance(100_000);
  assert.equal(asked.length, 2);
  assert.equal(clock.pending, waiting);
});

test("reports created and changed CSIDriver objects only of registered drivers", async () => {
  await using rig = start();
  rig.updates.addDriver("d");
  await rig.clock.advance(1);
  assert.deepEqual(rig.appeared, ["d"]);
  rig.told(about("e"));
  rig.told(about("d"));
  await rig.clock.advance(1);
  assert.deepEqual(rig.appeared, ["d", "d"]);
});
