import assert from "node:assert/strict";
import { test } from "node:test";
import type { Volume } from "../../../src/objects.ts";
import type { Volumes } from "../../../src/volumes/volumes.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, directoryOf, podWith, volumeBench } from "./volume-bench.ts";

/** A volume whose files are updated, and how its content changes. */
interface Updated {
  readonly what: string;
  readonly plugin: string;
  readonly file: string;
  readonly volume: Volume;
  set(bench: Bench, content: string): void;
  /** Makes the node notice the change, as its watch, its timer or the pod's next sync would. */
  notice(bench: Bench, stage: Volumes, content: string): Promise<unknown>;
}

const labelled = (volume: Volume, zone: string) => podWith([volume], {}, { labels: { zone } });

const downwardAPI: Volume = {
  name: "v",
  downwardAPI: { items: [{ path: "zone", fieldRef: { fieldPath: "metadata.labels['zone']" } }] },
};

const kinds: readonly Updated[] = [
  {
    what: "a ConfigMap",
    plugin: "configmap",
    file: "f",
    volume: { name: "v", configMap: { name: "m" } },
    set: (bench, f) => bench.setConfigMap("m", { f }),
    notice: async (_bench, stage) => stage.objectChanged("configmap", "default", "m"),
  },
  {
    what: "a Secret",
    plugin: "secret",
    file: "f",
    volume: { name: "v", secret: { secretName: "m" } },
    set: (bench, f) => bench.setSecret("m", { f }),
    notice: async (_bench, stage) => stage.objectChanged("secret", "default", "m"),
  },
  {
    what: "a projected token",
    plugin: "projected",
    file: "token",
    volume: { name: "v", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
    set(bench, token) {
      bench.issue = async () => ({
        token,
        refreshAt: bench.clock.now() + 60_000,
        expiresAt: bench.clock.now() + 75_000,
      });
    },
    notice: (bench) => bench.clock.advance(61_000),
  },
  {
    what: "the downward API",
    plugin: "downward-api",
    file: "zone",
    volume: downwardAPI,
    set: () => undefined,
    notice: async (_bench, stage, zone) => void stage.mount(labelled(downwardAPI, zone), never),
  },
];

for (const { what, plugin, file, volume, set, notice } of kinds) {
  test(`keeps the files of ${what} while a container starts, and updates them after it`, async () => {
    const bench = volumeBench();
    set(bench, "old");
    const stage = bench.start();
    await stage.mount(labelled(volume, "old"), never);
    const directory = directoryOf(plugin);
    const bound = `${directory}/${await bench.host.fs.readlink(`${directory}/..data`)}/${file}`;
    const answer = Promise.withResolvers<void>();
    const starting = stage.withStableFiles("uid-1", () => answer.promise);
    set(bench, "new");
    await notice(bench, stage, "new");
    await bench.clock.advance(5_000);
    assert.equal(await bench.text(bound), "old", "what the runtime is about to mount is still there");
    answer.resolve();
    await starting;
    await bench.clock.advance(0);
    assert.equal(await bench.text(`${directory}/${file}`), "new");
    await assert.rejects(bench.host.fs.lstat(bound), { code: "not_found" });
  });
}

test("a container start waits for an update in progress, and sees its files", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { f: "old" });
  const stage = bench.start();
  await stage.mount(podWith([{ name: "v", configMap: { name: "m" } }]), never);
  const written = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  bench.host.files.onChange(async ({ kind: change }) => {
    if (change !== "rename") return;
    bench.host.files.onChange(undefined);
    reached.resolve();
    await written.promise;
  });
  bench.setConfigMap("m", { f: "new" });
  stage.objectChanged("configmap", "default", "m");
  await reached.promise;
  let seen = "";
  const starting = stage.withStableFiles("uid-1", async () => {
    seen = await bench.text(`${directoryOf("configmap")}/f`);
  });
  await bench.clock.advance(0);
  assert.equal(seen, "", "the start has not begun");
  written.resolve();
  await starting;
  assert.equal(seen, "new");
});

test("a failed container start unblocks updates", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { f: "old" });
  const stage = bench.start();
  await stage.mount(podWith([{ name: "v", configMap: { name: "m" } }]), never);
  await assert.rejects(stage.withStableFiles("uid-1", () => Promise.reject(new Error("no such image"))));
  bench.setConfigMap("m", { f: "new" });
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/f`), "new");
});

test("a container start does not delay updates of other pods, and is not delayed without volumes", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { f: "old" });
  const stage = bench.start();
  await stage.mount(podWith([{ name: "v", configMap: { name: "m" } }]), never);
  const answer = Promise.withResolvers<void>();
  const starting = stage.withStableFiles("uid-2", () => answer.promise);
  bench.setConfigMap("m", { f: "new" });
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/f`), "new");
  answer.resolve();
  await starting;
});
