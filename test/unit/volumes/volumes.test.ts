import assert from "node:assert/strict";
import { test } from "node:test";
import { abortError, CodedError } from "../../../src/lib/errors.ts";
import type { Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { directoryOf, podWith, rootDir, volumeBench } from "./volume-bench.ts";

const configMap: Volume = { name: "v", configMap: { name: "m" } };
const token: Volume = { name: "v", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } };
const failures = (events: readonly string[]) =>
  events.filter((event) => event.includes("MountVolume.SetUp failed")).length;

test("does not set up volumes that no container mounts", async () => {
  const bench = volumeBench();
  const pod = podWith([{ name: "v", emptyDir: {} }]);
  const stage = bench.start();
  await stage.mount(
    {
      ...pod,
      spec: {
        ...pod.spec,
        volumes: [...(pod.spec.volumes ?? []), configMap, { name: "unused", secret: { secretName: "none" } }].filter(
          ({ name, emptyDir }) => name !== "v" || emptyDir,
        ),
      },
    },
    never,
  );
  assert.deepEqual([...stage.mounted("uid-1").keys()], ["v"]);
});

test("retries a failed volume after 0.5, 1, 2 s and so on, with an event each time", async () => {
  const bench = volumeBench();
  const mounting = bench.start().mount(podWith([configMap]), never);
  await bench.clock.advance(0);
  const counts: number[] = [];
  for (const ms of [499, 1, 999, 1, 1999, 1]) {
    await bench.clock.advance(ms);
    counts.push(failures(bench.events));
  }
  assert.deepEqual(counts, [1, 2, 2, 3, 3, 4]);
  bench.setConfigMap("m", { a: "1" });
  await bench.clock.advance(4000);
  await mounting;
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "1");
});

test("after any outage, a volume is ready within seconds once the API server is back", async () => {
  const bench = volumeBench();
  const { issue } = bench;
  bench.issue = async () => {
    throw new CodedError("unavailable", "the API server is away");
  };
  const stage = bench.start();
  const mounting = stage.mount(podWith([token]), never);
  await bench.clock.advance(90_000);
  bench.issue = issue;
  await bench.clock.advance(3_000);
  assert.deepEqual([...stage.mounted("uid-1").keys()], ["v"]);
  await mounting;
});

test("a set-up interrupted by the loss of the target completes once the target is back, without an event", async () => {
  const bench = volumeBench();
  const asked = Promise.withResolvers<void>();
  const { issue } = bench;
  let tries = 0;
  bench.issue = async (request) => {
    tries += 1;
    if (tries > 1) return issue(request);
    bench.target.lose();
    asked.resolve();
    throw new CodedError("unavailable", "connection closed");
  };
  const mounting = bench.start().mount(podWith([token]), never);
  await asked.promise;
  await bench.clock.advance(60_000);
  assert.deepEqual([tries, bench.events], [1, []]);
  bench.target.find();
  await mounting;
  assert.deepEqual([tries, bench.events], [2, []]);
});

test("after 2m3s the sync fails with the kubelet's text and lists missing volumes; events are for volumes only", async () => {
  const bench = volumeBench();
  const stage = bench.start();
  const mounting = stage.mount(
    podWith([configMap, { name: "fine", emptyDir: {} }, { name: "w", secret: { secretName: "s" } }]),
    never,
  );
  let isOver = false;
  const outcome = assert
    .rejects(mounting, {
      code: "deadline_exceeded",
      message:
        "Unable to attach or mount volumes: unmounted volumes=[v w], unattached volumes=[], failed to process volumes=[]: context deadline exceeded",
    })
    .finally(() => (isOver = true));
  await bench.clock.advance(122_999);
  assert.equal(isOver, false);
  await bench.clock.advance(1);
  await outcome;
  assert.ok(bench.events.length > 0);
  assert.deepEqual(
    bench.events.filter((event) => !event.includes("MountVolume.SetUp failed")),
    [],
  );
  assert.deepEqual([...stage.mounted("uid-1").keys()], ["fine"]);
});

test("creating a missing object ends the wait at once", async () => {
  const bench = volumeBench();
  const stage = bench.start();
  const mounting = stage.mount(podWith([configMap]), never);
  await bench.clock.advance(100_000);
  const tries = failures(bench.events);
  bench.setConfigMap("m", { a: "1" });
  stage.objectChanged("configmap", "default", "m");
  await mounting;
  assert.equal(failures(bench.events), tries);
});

test("a changed object is written to the volumes of running pods at once", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const stage = bench.start();
  await stage.mount(podWith([configMap]), never);
  bench.setConfigMap("m", { a: "2" });
  stage.objectChanged("configmap", "elsewhere", "m");
  stage.objectChanged("secret", "default", "m");
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "1");
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "2");
});

test("changes in quick succession never write concurrently, and the last one wins", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "0" });
  const stage = bench.start();
  const pod = podWith([configMap]);
  await stage.mount(pod, never);
  const gate = Promise.withResolvers<void>();
  bench.host.files.onChange(() => gate.promise);
  for (const a of ["1", "2", "3"]) {
    bench.setConfigMap("m", { a });
    stage.objectChanged("configmap", "default", "m");
  }
  const mounting = stage.mount(pod, never);
  await bench.clock.advance(0);
  gate.resolve();
  await mounting;
  await bench.clock.advance(0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "3");
  const versions = (await bench.host.fs.list(directoryOf("configmap"))).filter(({ name }) => /^\.\.\d/.test(name));
  assert.equal(versions.length, 1);
  assert.deepEqual(bench.events, []);
});

test("the sync of an unchanged pod writes nothing", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const stage = bench.start();
  const pod = podWith([configMap, { ...token, name: "w" }, { name: "x", emptyDir: {} }]);
  bench.issue = async () => ({
    token: "same",
    refreshAt: bench.clock.now() + 60_000,
    expiresAt: bench.clock.now() + 75_000,
  });
  await stage.mount(pod, never);
  const [changes, commands] = [bench.host.files.changes.length, bench.host.commands.length];
  await stage.mount(pod, never);
  assert.deepEqual([bench.host.files.changes.length, bench.host.commands.length], [changes, commands]);
});

test("a mounted volume stays when its object is deleted, and the sync succeeds", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const stage = bench.start();
  await stage.mount(podWith([configMap]), never);
  bench.dropConfigMap("m");
  await stage.mount(podWith([configMap]), never);
  assert.equal(failures(bench.events), 1);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "1");
});

test("renews a token when due, without a sync", async () => {
  const bench = volumeBench();
  const stage = bench.start();
  await stage.mount(podWith([token]), never);
  const path = `${directoryOf("projected")}/token`;
  await bench.clock.advance(59_999);
  assert.equal(await bench.text(path), "token-1");
  await bench.clock.advance(1);
  assert.equal(await bench.text(path), "token-2");
  await bench.clock.advance(60_000);
  assert.equal(await bench.text(path), "token-3");
  stage.stop();
  await bench.clock.advance(120_000);
  assert.equal(bench.requests.length, 3);
});

test("a set-up aborted because the node stops causes no event on the pod", async () => {
  const bench = volumeBench();
  const stage = bench.start();
  await stage.mount(podWith([token]), never);
  bench.issue = async () => {
    throw abortError(AbortSignal.abort());
  };
  await bench.clock.advance(60_000);
  assert.deepEqual(bench.events, []);
});

test("retries a failed token renewal", async () => {
  const bench = volumeBench();
  const { issue } = bench;
  const stage = bench.start();
  await stage.mount(podWith([token]), never);
  bench.issue = async () => {
    throw new CodedError("unavailable", "the API server is away");
  };
  await bench.clock.advance(60_000);
  assert.equal(
    bench.events.at(-1),
    'Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : the API server is away',
  );
  bench.issue = issue;
  await bench.clock.advance(122_000);
  assert.equal(await bench.text(`${directoryOf("projected")}/token`), "token-2");
});

test("unmounts first, then removes the directories, and can be repeated", async () => {
  const bench = volumeBench();
  bench.setSecret("s", { a: "1" });
  const stage = bench.start();
  bench.host.files.put("/data/precious", { data: "kept" });
  await stage.mount(
    podWith([
      { name: "v", secret: { secretName: "s" } },
      { name: "w", emptyDir: {} },
      { name: "x", hostPath: { path: "/data", type: "" } },
    ]),
    never,
  );
  await bench.host.fs.apply([{ kind: "symlink", path: `${directoryOf("empty-dir", "w")}/out`, target: "/data" }]);
  bench.host.files.put(`${rootDir}/pods/uid-1/etc-hosts`);
  for (const _ of ["once", "again"]) {
    await stage.unmount("uid-1", never);
    assert.deepEqual(bench.host.files.mounted(), []);
    assert.deepEqual(bench.host.files.tree(`${rootDir}/pods/uid-1`), [`${rootDir}/pods/uid-1/etc-hosts`]);
    assert.equal(stage.mounted("uid-1").size, 0);
  }
  assert.equal(bench.host.files.text("/data/precious"), "kept");
});

test("unmounts a pod known only by its UID", async () => {
  const bench = volumeBench();
  bench.setSecret("s", { a: "1" });
  await bench.start().mount(podWith([{ name: "v", secret: { secretName: "s" } }]), never);
  const next = bench.start();
  assert.deepEqual(await next.podDirectories(never), ["uid-1"]);
  await next.unmount("uid-1", never);
  await next.removePodDirectory("uid-1", never);
  assert.deepEqual(await next.podDirectories(never), []);
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("deletes nothing while something stays mounted", async () => {
  const bench = volumeBench();
  bench.host.files.put("/data/precious", { data: "kept" });
  const path = directoryOf("nfs");
  bench.host.files.put(`${path}/file`);
  bench.host.files.mount(path, "nfs4");
  bench.host.program("umount", () => 32);
  const stage = bench.start();
  const before = bench.host.files.changes.length;
  await assert.rejects(stage.unmount("uid-1", never), { code: "failed_precondition" });
  await assert.rejects(stage.removePodDirectory("uid-1", never), { code: "failed_precondition" });
  assert.equal(bench.host.files.changes.length, before);
});

test("records the teardown duration of each mounted volume until the teardown succeeds", async () => {
  const bench = volumeBench();
  bench.setSecret("s", { a: "1" });
  const stage = bench.start();
  const missing: Volume = { name: "x", configMap: { name: "none" } };
  const pod = podWith([{ name: "v", secret: { secretName: "s" } }, { name: "w", emptyDir: {} }, missing]);
  const mounting = assert.rejects(stage.mount(pod, never), { code: "deadline_exceeded" });
  await bench.clock.advance(123_000);
  await mounting;
  const stuck = directoryOf("empty-dir", "w");
  bench.host.files.mount(stuck, "nfs4");
  let busy = true;
  bench.host.program("umount", (paths) => {
    if (!busy) for (const path of paths) bench.host.files.unmount(path);
    return busy ? 32 : 0;
  });
  await assert.rejects(stage.unmount("uid-1", never), { code: "failed_precondition" });
  busy = false;
  await stage.unmount("uid-1", never);
  await stage.unmount("uid-1", never);
  const both = (how: string) => ["secret", "empty-dir"].map((plugin) => `kubernetes.io/${plugin} ${how}`);
  assert.deepEqual(bench.tornDown, [...both("failed"), ...both("gone")]);
});

test("finds mounts if the root directory is a symbolic link", async () => {
  const bench = volumeBench();
  await bench.host.fs.apply([
    { kind: "mkdir", path: "/disk/kubelet", parents: true },
    { kind: "mkdir", path: "/var/lib", parents: true },
    { kind: "symlink", path: rootDir, target: "/disk/kubelet" },
  ]);
  const pod = podWith([{ name: "v", emptyDir: { medium: "Memory" } }]);
  await bench.start().mount(pod, never);
  const stage = bench.start();
  await stage.mount(pod, never);
  assert.equal(bench.host.commands.length, 1);
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("waits for a running set-up before removing volumes, and creates nothing afterwards", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const stage = bench.start();
  await stage.mount(podWith([configMap]), never);
  const gate = Promise.withResolvers<void>();
  bench.setConfigMap("m", { a: "2" });
  bench.host.files.onChange((change) => (change.kind === "write" ? gate.promise : undefined));
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(0);
  const unmounting = stage.unmount("uid-1", never);
  await bench.clock.advance(0);
  gate.resolve();
  await unmounting;
  stage.objectChanged("configmap", "default", "m");
  await bench.clock.advance(200_000);
  assert.deepEqual(bench.host.files.tree(`${rootDir}/pods/uid-1`), []);
});

test("rejects a UID that is not a valid directory name", async () => {
  const stage = volumeBench().start();
  for (const uid of ["", "..", ".", "a/b", "../../etc"])
    await assert.rejects(stage.unmount(uid, never), { code: "invalid_argument" });
});

test("an unresponsive API server delays a sync for 2m3s, but not all later ones", async () => {
  const bench = volumeBench();
  bench.issue = () => new Promise(() => {});
  const stage = bench.start();
  const first = assert.rejects(stage.mount(podWith([token]), never), { code: "deadline_exceeded" });
  await bench.clock.advance(123_000);
  await first;
});

test("skips the search for leftover mounts of new pods, but not after a restart or a failure", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const looks: string[] = [];
  const { lstat, readlink, realpath } = bench.host.fs;
  Object.assign(bench.host.fs, {
    lstat: (...given: Parameters<typeof lstat>) => (looks.push("lstat"), lstat(...given)),
    readlink: (...given: Parameters<typeof readlink>) => (looks.push("readlink"), readlink(...given)),
    realpath: (...given: Parameters<typeof realpath>) => (looks.push("realpath"), realpath(...given)),
  });
  const memory: Volume = { name: "w", emptyDir: { medium: "Memory" } };
  const pod = podWith([configMap, memory, { name: "x", emptyDir: {} }]);
  const stage = bench.start();
  await stage.mount(pod, never);
  assert.equal(looks.length, 0);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "1");
  for (const part of ["", "/volumes", "/plugins"])
    assert.equal((await bench.host.fs.stat(`${rootDir}/pods/uid-1${part}`)).mode, 0o750);
  await bench.start().mount(pod, never);
  assert.ok(looks.includes("readlink") && looks.includes("realpath"));
  looks.length = 0;
  await stage.unmount("uid-1", never);
  await stage.mount(pod, never);
  assert.ok(looks.includes("readlink"), "the same pod again");
});
