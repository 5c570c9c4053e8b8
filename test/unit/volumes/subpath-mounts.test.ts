import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { createSubPathMounts } from "../../../src/volumes/subpath-mounts.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";
import { podWith, rootDir, volumeBench } from "./volume-bench.ts";

const podDir = `${rootDir}/pods/uid-1`;
const volume = `${podDir}/volumes/kubernetes.io~empty-dir/v`;
const part = (index: number, subPath: string) => ({ index, volume: "v", subPath });

/** A pod with a mounted emptyDir, on a machine whose shell binds each subPath unless `answer` says otherwise. */
async function mounted(answer: (part: string) => "bound" | "create" | "bind" = () => "bound") {
  const bench = volumeBench();
  const pod = podWith([{ name: "v", emptyDir: {} }]);
  const asked: string[][] = [];
  bench.host.program("sh", async (args, { stdout }) => {
    const lines: string[] = [];
    const table = ["8:1 / /"];
    for (let at = 3; at < args.length; at += 3) {
      const [base = "", below = "", target = ""] = args.slice(at, at + 3);
      asked.push([base, below, target]);
      const word = answer(below);
      lines.push(word);
      if (word !== "bound") break;
      lines.push(base, target);
      table.push(`8:1 ${base}/${below} ${target}`);
      await bench.host.fs.apply([{ kind: "mkdir", path: target, parents: true }]);
      bench.host.files.mount(target, "none");
    }
    stdout.write(`${lines.join("\n")}\n\n${table.join("\n")}\n`);
    return 0;
  });
  const stage = bench.start();
  await stage.mount(pod, never);
  return { bench, pod, stage, asked };
}

test("binds all subPath mounts in one command, each to its own target below the pod's directory", async () => {
  const { pod, stage, asked } = await mounted();
  const places = await stage.bindSubPaths(pod, "c", [part(1, "a//b/."), part(3, ".")], never);
  const target = (index: number) => `${podDir}/volume-subpaths/v/c/${index}`;
  assert.deepEqual(
    [...places],
    [
      [1, target(1)],
      [3, target(3)],
    ],
  );
  assert.deepEqual(asked, [
    [volume, "a/b", target(1)],
    [volume, "", target(3)],
  ]);
});

test("subPath mounts of a claim are in a directory named after its PersistentVolume", async () => {
  const asked: string[] = [];
  const host = fakeHost({ clock: fakeClock() });
  host.program("sh", (args) => {
    asked.push(...args.slice(3));
    return 1;
  });
  const persistent = { name: "pv", plugin: "kubernetes.io/csi", isDevice: false };
  const mounted = new Map([["v", { hostPath: "/there", readOnly: false, persistent }]]);
  const log = silentLog();
  await assert.rejects(
    createSubPathMounts({ host, rootDir, log }, () => mounted).bindSubPaths(podWith([]), "c", [part(2, "a")], never),
  );
  assert.deepEqual(asked, ["/there", "a", `${podDir}/volume-subpaths/pv/c/2`]);
});

test("a container without subPath mounts runs no command", async () => {
  const { bench, pod, stage } = await mounted();
  assert.equal((await stage.bindSubPaths(pod, "c", [], never)).size, 0);
  assert.deepEqual(bench.host.commands, []);
});

test("reports failures in the kubelet's words, without paths of the host", async () => {
  const failing = await mounted((below) => (below === "ok" ? "bound" : below === "make" ? "create" : "bind"));
  const bind = (...paths: readonly string[]) =>
    failing.stage.bindSubPaths(
      failing.pod,
      "c",
      paths.map((path, index) => part(index, path)),
      never,
    );
  await assert.rejects(bind("ok", "make"), {
    message: 'failed to create subPath directory for volumeMount "v" of container "c"',
  });
  await assert.rejects(bind("link"), { message: 'failed to prepare subPath for volumeMount "v" of container "c"' });
  await assert.rejects(failing.stage.bindSubPaths(failing.pod, "c", [{ ...part(0, "a"), volume: "w" }], never), {
    message: 'cannot find volume "w" to mount into container "c"',
  });
});

test("rejects a subPath longer than the kernel opens, in the kubelet's words", async () => {
  const { bench, pod, stage } = await mounted();
  const bind = (subPath: string) => stage.bindSubPaths(pod, "c", [part(0, subPath)], never);
  const names = (bytes: number) =>
    "ab/"
      .repeat(Math.ceil(bytes / 3))
      .slice(0, bytes)
      .replace(/\/$/, "b");
  const rest = 4095 - volume.length - 1;
  assert.equal((await bind(names(rest))).size, 1);
  const before = bench.host.commands.length;
  for (const subPath of [names(rest + 1), `a/${"ä".repeat(128)}`])
    await assert.rejects(bind(subPath), { message: 'failed to prepare subPath for volumeMount "v" of container "c"' });
  assert.equal(bench.host.commands.length, before, "the machine is asked nothing");
});

test("makes a subPath mount private before unmounting, so that nested host mounts stay on the host", async () => {
  const { bench, pod, stage } = await mounted();
  const places = await stage.bindSubPaths(pod, "c", [part(0, "a")], never);
  const [place = ""] = places.values();
  await bench.host.fs.apply([{ kind: "mkdir", path: `${place}/disk` }]);
  bench.host.files.mount(`${place}/disk`, "ext4");
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.commands.slice(-3), [
    ["mount", "--make-rprivate", place],
    ["umount", `${place}/disk`],
    ["umount", place],
  ]);
});

test("unmounts non-nested mounts in one command; a mount that stays is retried separately and reported", async () => {
  const { bench, pod, stage } = await mounted();
  const places = [...(await stage.bindSubPaths(pod, "c", [part(0, "a"), part(1, "b"), part(2, "c")], never)).values()];
  let busy = true;
  bench.host.program("umount", (paths) => {
    for (const path of paths) if (path !== places[1] || !busy) bench.host.files.unmount(path);
    return busy ? 32 : 0;
  });
  await assert.rejects(stage.unmount("uid-1", never), { code: "failed_precondition" });
  assert.deepEqual(bench.host.commands.slice(-2), [
    ["umount", ...places.toReversed()],
    ["umount", places[1]],
  ]);
  busy = false;
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("unmounts subPath mounts with the pod's volumes, also after a restart", async () => {
  const { bench, pod, stage } = await mounted();
  await stage.bindSubPaths(pod, "c", [part(0, "a"), part(1, "b")], never);
  assert.equal(bench.host.files.mounted().length, 2);
  await bench.start().unmount("uid-1", never);
  assert.deepEqual([bench.host.files.mounted(), bench.host.files.tree(podDir)], [[], []]);
});
