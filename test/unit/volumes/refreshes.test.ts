import assert from "node:assert/strict";
import { test } from "node:test";
import type { Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { directoryOf, podWith, volumeBench } from "./volume-bench.ts";

const configMap: Volume = { name: "v", configMap: { name: "m" } };

test("rate-limits refreshes while an object keeps changing, and writes the newest state in the end", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "0" });
  const stage = bench.start();
  await stage.mount(podWith([configMap]), never);
  let writes = 0;
  bench.host.files.onChange(({ kind: change }) => void (writes += change === "rename" ? 1 : 0));
  const changeFor = async (seconds: number) => {
    for (let change = 1; change <= seconds * 100; change += 1) {
      bench.setConfigMap("m", { a: `${change}` });
      stage.objectChanged("configmap", "default", "m");
      await bench.clock.advance(10);
    }
  };
  await changeFor(20);
  assert.equal(writes, 5, "refreshes at 0, 1, 3, 7 and 15 s");
  await bench.clock.advance(10_000);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "2000");
  assert.equal(writes, 6);
  await bench.clock.advance(60_000);
  bench.setConfigMap("m", { a: "after a quiet time" });
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "after a quiet time");
});

test("does not retry a failing volume whenever another object changes", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "0" });
  const stage = bench.start();
  const mounting = stage.mount(podWith([configMap, { name: "w", secret: { secretName: "missing" } }]), never);
  const outcome = assert.rejects(mounting);
  await bench.clock.advance(0);
  for (let change = 1; change <= 1_000; change += 1) {
    stage.objectChanged("configmap", "default", "m");
    await bench.clock.advance(10);
  }
  const tries = bench.events.filter((event) => event.includes("MountVolume.SetUp failed")).length;
  assert.ok(tries <= 12, `${tries} tries`);
  await bench.clock.advance(130_000);
  await outcome;
});

test("queues at most one refresh behind a slow one, without delaying other pods", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "0" });
  const stage = bench.start();
  const fast = podWith([configMap]);
  await stage.mount(fast, never);
  const slow = { ...fast, metadata: { ...fast.metadata, uid: "uid-2", name: "slow" } };
  await stage.mount(slow, never);
  const gate = Promise.withResolvers<void>();
  const renames: string[] = [];
  bench.host.files.onChange(async (change) => {
    if (change.kind !== "rename") return;
    const uid = change.to.includes("uid-2") ? "uid-2" : "uid-1";
    if (uid === "uid-2") await gate.promise;
    renames.push(uid);
  });
  for (let change = 1; change <= 60; change += 1) {
    bench.setConfigMap("m", { a: `${change}` });
    stage.objectChanged("configmap", "default", "m");
    await bench.clock.advance(1_000);
  }
  await bench.clock.advance(10_000);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "60");
  assert.ok(!renames.includes("uid-2"));
  gate.resolve();
  await bench.clock.advance(0);
  assert.equal(renames.filter((uid) => uid === "uid-2").length, 2);
  assert.equal(await bench.text(`${directoryOf("configmap").replace("uid-1", "uid-2")}/a`), "60");
});
