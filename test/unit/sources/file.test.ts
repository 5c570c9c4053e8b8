import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Parser } from "yaml";
import { createLogger } from "../../../src/lib/log.ts";
import type { Pod } from "../../../src/objects.ts";
import { createManifestErrors } from "../../../src/sources/manifest-errors.ts";
import { createFileSource } from "../../../src/sources/file.ts";
import { createManifestSet } from "../../../src/sources/manifest-set.ts";
import { type PathChange, watchPath } from "../../../src/lib/file-watcher.ts";
import { fakeClock } from "../../fakes/clock.ts";

const manifest = (name: string, image = "nginx") =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec:\n  containers: [{name: c, image: "${image}"}]\n`;

/** A source over a real directory with a fake clock. */
async function rig(t: TestContext, path?: (folder: string) => string) {
  const folder = await mkdtemp(join(tmpdir(), "manifests-"));
  const clock = fakeClock();
  const told: string[] = [];
  const logged: string[] = [];
  const sets: (readonly Pod[])[] = [];
  let heard = Promise.withResolvers<void>();
  let changed: (change: PathChange) => void = () => undefined;
  const source = createFileSource({
    path: path ? path(folder) : folder,
    everyMs: 20_000,
    nodeName: "n",
    clock,
    adopt: ({ pod }) => pod,
    complaints: createManifestErrors({
      nodeName: "n",
      events: { event: (about, type, reason, message) => void told.push(`${about.kind} ${type} ${reason} ${message}`) },
      log: createLogger(4, { write: (line) => void logged.push(line) }),
    }),
    set: (pods) => {
      sets.push(pods);
      heard.resolve();
    },
    watch: (_path, onChange) => {
      changed = onChange;
      return { renew: async () => undefined, [Symbol.dispose]: () => undefined };
    },
  });
  const stop = new AbortController();
  const done = source.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
    await rm(folder, { recursive: true });
  });
  /** The names of the next set. */
  const next = async (move: () => Promise<void>) => {
    await heard.promise;
    // The source is idle, and misses no change.
    while (clock.pending === 0) await new Promise(setImmediate);
    heard = Promise.withResolvers();
    await move();
    await heard.promise;
    return (sets.at(-1) ?? []).map(({ metadata }) => metadata.name);
  };
  // The first read does not see half-written files.
  await heard.promise;
  return {
    folder,
    told,
    logged,
    sets,
    clock,
    write: (name: string, text: string) => writeFile(join(folder, name), text),
    period: () => next(() => clock.advance(20_000)),
    /** A periodic read without a new set. */
    async unheard(seen: () => boolean) {
      while (clock.pending === 0) await new Promise(setImmediate);
      await clock.advance(20_000);
      while (!seen()) await new Promise(setImmediate);
    },
    second: () => next(() => clock.advance(1_000)),
    /** @param entries the names whose entries changed. */
    change: (...entries: readonly string[]) =>
      next(async () => {
        for (const name of entries) changed({ path: join(folder, name), entry: true });
        changed({ path: undefined, entry: false });
        await clock.advance(100);
      }),
  };
}

test("reads the manifests of a directory by name: at the start, on changes and periodically", async (t) => {
  const { write, folder, period, change, sets, told } = await rig(t);
  assert.deepEqual(sets[0], [], "an empty folder has spoken too");
  await write("b.yaml", manifest("b"));
  await write(
    "a.json",
    JSON.stringify({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "a" },
      spec: { containers: [{ name: "c", image: "i" }] },
    }),
  );
  await write(".hidden.yaml", manifest("hidden"));
  assert.deepEqual(await change(), ["a-n", "b-n"]);
  const [, before] = sets.at(-1) ?? [];
  await write("b.yaml", manifest("b", "other"));
  assert.deepEqual(await period(), ["a-n", "b-n"]);
  assert.notEqual(sets.at(-1)?.[1]?.metadata.uid, before?.metadata.uid);
  await rm(join(folder, "a.json"));
  assert.deepEqual(await change(), ["b-n"]);
  assert.deepEqual(told, []);
});

test("reports each bad file once, without affecting others", async (t) => {
  const { write, folder, change, period, told, logged } = await rig(t);
  await write("good.yaml", manifest("good"));
  await write("big.yaml", `${manifest("big")}# ${"x".repeat(2 << 20)}\n`);
  await write("list.yaml", `- ${manifest("x").replaceAll("\n", "\n  ")}`);
  await write("two.yaml", `${manifest("x")}---\n${manifest("y")}`);
  await write("kind.yaml", manifest("x").replace("Pod", "Service"));
  await write("torn.yaml", manifest("x").slice(0, 40));
  await write("text.txt", "not: [yaml");
  await write("slash.yaml", manifest("x").replace("{name: x}", "{name: x, namespace: a/b, uid: c/d}"));
  await write("twice.yaml", manifest("good"));
  await mkdir(join(folder, "sub"));
  await write("sub/inner.yaml", manifest("inner"));
  const outside = await mkdtemp(join(tmpdir(), "outside-"));
  t.after(() => rm(outside, { recursive: true }));
  await writeFile(join(outside, "secret.yaml"), manifest("secret"));
  await symlink(join(outside, "secret.yaml"), join(folder, "link.yaml"));
  await symlink(join(folder, "nothing"), join(folder, "loose.yaml"));
  execFileSync("mkfifo", [join(folder, "fifo.yaml")]);
  assert.deepEqual(await change(), ["good-n"]);
  const named = told.map((line) => line.slice(`Node Warning InvalidManifest ${folder}/`.length));
  const whys = {
    "big.yaml": "it is longer than 1048576 bytes",
    "fifo.yaml": "it is not a regular file",
    "kind.yaml": 'its kind is "Service"',
    "link.yaml": `it is a symbolic link out of its directory, to ${outside}/secret.yaml`,
    "list.yaml": "it contains a list",
    "loose.yaml": "it is a dangling symbolic link",
    "slash.yaml": "metadata.namespace",
    sub: "it is a directory",
    "text.txt": "it is not YAML",
    "torn.yaml": "it is not YAML",
    "twice.yaml": `pod default/good-n is already defined in ${folder}/good.yaml`,
    "two.yaml": "it contains several documents",
  };
  for (const [name, why] of Object.entries(whys))
    assert.ok(
      named.some((line) => line.startsWith(`${name} is ignored: ${why}`)),
      `${name} ${why}\n${named.join("\n")}`,
    );
  assert.equal(told.length, Object.keys(whys).length);
  for (const name of Object.keys(whys))
    assert.ok(
      logged.some((line) => line.includes(`${folder}/${name}"`)),
      name,
    );
  assert.deepEqual(await period(), ["good-n"]);
  assert.equal(told.length, Object.keys(whys).length, "nothing is told again");
});

test("does not read a directory with too many files, and keeps running pods", async (t) => {
  for (const [much, fill] of [
    ["1000 files", 1_000],
    ["16777216 bytes", 17],
  ] as const) {
    const { write, folder, change, period, unheard, told } = await rig(t);
    await write("good.yaml", manifest("good"));
    assert.deepEqual(await change(), ["good-n"]);
    const names = Array.from({ length: fill }, (_, index) => `a${index}.yaml`);
    const large = "\n".repeat(fill > 100 ? 1 : 1_000_000);
    await Promise.all(names.map((name) => write(name, large)));
    await unheard(() => told.length > 0);
    assert.ok(
      told
        .at(-1)
        ?.endsWith(`${folder} is ignored: it contains more than ${much}: it is not read until there are fewer`),
      told.join("\n"),
    );
    await rm(join(folder, names[0] ?? ""));
    assert.deepEqual(await period(), ["good-n"]);
  }
});

test("follows links inside the directory, as in a ConfigMap volume", async (t) => {
  const { write, folder, change, told } = await rig(t);
  await mkdir(join(folder, "..2026"));
  await write("..2026/web.yaml", manifest("web"));
  await symlink("..2026", join(folder, "..data"));
  await symlink("..data/web.yaml", join(folder, "web.yaml"));
  assert.deepEqual(await change(), ["web-n"]);
  assert.deepEqual(told, []);
});

test("an invalid file keeps its previous pod until it is fixed or removed", async (t) => {
  const { write, folder, change, sets, told } = await rig(t);
  await write("a.yaml", manifest("a"));
  await change();
  const before = sets.at(-1);
  await write("a.yaml", "kind: [");
  assert.deepEqual(await change(), ["a-n"]);
  assert.deepEqual(sets.at(-1), before);
  assert.match(told[0] ?? "", /pod default\/a-n, which it contained before, keeps running$/);
  await write("a.yaml", manifest("a", "other"));
  assert.deepEqual(await change(), ["a-n"]);
  assert.notDeepEqual(sets.at(-1), before);
  await write("a.yaml", "kind: [");
  await change();
  await rm(join(folder, "a.yaml"));
  assert.deepEqual(await change(), []);
  assert.equal(told.length, 2);
});

test("a file that was invalid for a while keeps its pod with the adopted UID", async () => {
  const { signal } = new AbortController();
  const set = createManifestSet({
    nodeName: "n",
    clock: fakeClock(),
    adopt: ({ pod }) => ({ ...pod, metadata: { ...pod.metadata, uid: "adopted" } }),
    complaints: { report: () => undefined, warn: () => undefined, clear: () => undefined },
  });
  const uids = async (text: string) =>
    (await set.podsOf([{ path: "/m/a.yaml", text }], signal)).map(({ metadata }) => metadata.uid);
  for (const text of [manifest("a"), "kind: [", manifest("a")]) assert.deepEqual(await uids(text), ["adopted"]);
  assert.notDeepEqual(await uids(manifest("a", "other")), ["adopted"]);
});

test("the first of two files with the same pod keeps it; the other takes over when the first is removed", async (t) => {
  const { write, folder, change, sets } = await rig(t);
  await write("b.yaml", manifest("web"));
  await change();
  const [first] = sets.at(-1) ?? [];
  await write("a.yaml", manifest("web", "other"));
  await change();
  assert.deepEqual(sets.at(-1), [first]);
  await rm(join(folder, "b.yaml"));
  await change();
  assert.equal(sets.at(-1)?.[0]?.spec.containers[0]?.image, "other");
});

test("the first of two pods with the same UID keeps running, and the other's file is reported", async (t) => {
  const { write, folder, change, period, sets, told } = await rig(t);
  const withUid = (name: string) => manifest(name).replace(`name: ${name}`, `name: ${name}, uid: u-1`);
  await write("b.yaml", withUid("web"));
  await change();
  const [first] = sets.at(-1) ?? [];
  await write("a.yaml", withUid("copy"));
  assert.deepEqual(await change(), ["web-n"]);
  assert.deepEqual(await period(), ["web-n"]);
  assert.equal(sets.at(-1)?.[0], first);
  assert.deepEqual(told, [
    `Node Warning InvalidManifest ${folder}/a.yaml is ignored: a pod with UID u-1 is already defined in ${folder}/b.yaml: omit metadata.uid`,
  ]);
  await rm(join(folder, "b.yaml"));
  assert.deepEqual(await change(), ["copy-n"]);
});

test("does not parse an unchanged text again, valid or not", async (t) => {
  const { write, change, period } = await rig(t);
  const parse = t.mock.method(Parser.prototype, "parse");
  await write("a.yaml", manifest("a"));
  await write("again.yaml", manifest("a"));
  await write("torn.yaml", manifest("x").slice(0, 40));
  await change();
  assert.equal(parse.mock.callCount(), 3);
  await period();
  await change();
  assert.equal(parse.mock.callCount(), 3);
  await write("torn.yaml", manifest("b"));
  assert.deepEqual(await change(), ["a-n", "b-n"]);
});

test("treats a missing path as empty, reports it and checks it every second", async (t) => {
  const { folder, sets, told, second } = await rig(t, (root) => join(root, "manifests"));
  assert.deepEqual(sets[0], []);
  await mkdir(join(folder, "coming"));
  await writeFile(join(folder, "coming/a.yaml"), manifest("a"));
  await rename(join(folder, "coming"), join(folder, "manifests"));
  assert.deepEqual(await second(), ["a-n"]);
  assert.match(told[0] ?? "", /manifests is ignored: it does not exist: create the directory/);
});

test("accepts a file as the path", async (t) => {
  const { write, second, period } = await rig(t, (root) => join(root, "only.yaml"));
  await write("other.yaml", manifest("other"));
  await write("only.yaml", manifest("only"));
  assert.deepEqual(await second(), ["only-n"]);
  await write("only.yaml", manifest("renamed"));
  assert.deepEqual(await period(), ["renamed-n"]);
});

test("restarts the pod of a manifest that was removed and put back, but not of a replaced one", async (t) => {
  const { write, change, sets } = await rig(t);
  await write("a.yaml", manifest("a"));
  await write("b.yaml", manifest("b"));
  await change("a.yaml", "a.yaml", "b.yaml");
  const names = () => sets.splice(0).map((pods) => pods.map(({ metadata }) => metadata.name));
  assert.deepEqual(names(), [[], ["a-n", "b-n"]]);
  await change("a.yaml", "b.yaml", "a.yaml");
  assert.deepEqual(names(), [["b-n"], ["b-n", "a-n"]]);
  await change("a.yaml");
  await write("b.yaml", "kind: [");
  await change("b.yaml", "b.yaml");
  assert.deepEqual(names(), [
    ["a-n", "b-n"],
    ["a-n", "b-n"],
  ]);
});

test("a watch distinguishes added and removed entries from written files", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "watched-"));
  t.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "a.yaml");
  await writeFile(path, "x");
  const changes: PathChange[] = [];
  let told = Promise.withResolvers<void>();
  let marker = folder;
  let marks = 0;
  using watch = watchPath(folder, (change) => {
    changes.push(change);
    if (change.path === marker && change.entry) told.resolve();
  });
  await watch.renew();
  /** Changes reported for the file: the kernel reports them in order. */
  const seen = async () => {
    told = Promise.withResolvers();
    marker = join(folder, `marker-${marks++}`);
    await mkdir(marker);
    await told.promise;
    const own = changes.splice(0).filter((change) => change.path === path);
    return { entries: own.filter(({ entry }) => entry).length, writes: own.some(({ entry }) => !entry) };
  };
  await rm(path);
  await writeFile(path, "x");
  assert.deepEqual(await seen(), { entries: 2, writes: true });
  await writeFile(path, "y");
  assert.deepEqual(await seen(), { entries: 0, writes: true });
  await writeFile(join(folder, "b"), "x");
  await rename(join(folder, "b"), path);
  assert.deepEqual(await seen(), { entries: 1, writes: false });
});

test("a watch reports changes in a directory and in its replacement", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "watched-"));
  t.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "m");
  await mkdir(path);
  let heard = Promise.withResolvers<void>();
  using watch = watchPath(path, () => heard.resolve());
  await watch.renew();
  await writeFile(join(path, "a.yaml"), "x");
  await heard.promise;
  await rename(path, join(folder, "old"));
  await mkdir(path);
  await watch.renew();
  heard = Promise.withResolvers();
  await writeFile(join(path, "b.yaml"), "x");
  await heard.promise;
});
