import assert from "node:assert/strict";
import { test } from "node:test";
import type { Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { directoryOf, failed, mounted, podWith, refusal, rootDir, volumeBench } from "./volume-bench.ts";

test("an emptyDir on disk has mode 0777 and the kubelet's ready file", async () => {
  const bench = volumeBench();
  const volumes = await mounted(bench, [{ name: "v", emptyDir: {} }]);
  const path = directoryOf("empty-dir");
  assert.deepEqual(volumes.get("v"), { hostPath: path, readOnly: false });
  assert.equal((await bench.host.fs.lstat(path)).mode, 0o777);
  assert.equal(bench.host.files.text(`${rootDir}/pods/uid-1/plugins/kubernetes.io~empty-dir/v/ready`), "");
});

test("an existing emptyDir keeps the mode that the pod set, even after a restart", async () => {
  const bench = volumeBench();
  const path = directoryOf("empty-dir");
  await mounted(bench, [{ name: "v", emptyDir: {} }]);
  await bench.host.fs.apply([
    { kind: "chmod", path, mode: 0o700 },
    { kind: "write", path: `${path}/data`, data: "kept" },
  ]);
  await mounted(bench, [{ name: "v", emptyDir: {} }]);
  assert.equal((await bench.host.fs.lstat(path)).mode, 0o700);
  assert.equal(await bench.text(`${path}/data`), "kept");
});

test("an emptyDir in memory is limited by its sizeLimit, the containers' limits and the node's memory", async () => {
  const limited = (memory: string) => ({
    name: memory,
    image: "i",
    volumeMounts: [{ name: "v", mountPath: "/v" }],
    resources: { limits: { memory } },
  });
  const cases: readonly (readonly [limit: string | undefined, containers: readonly string[], size: number])[] = [
    [undefined, [], 2 ** 30],
    ["64Mi", [], 64 * 2 ** 20],
    ["2Gi", [], 2 ** 30],
    [undefined, ["100Mi", "28Mi"], 128 * 2 ** 20],
    [undefined, ["100Mi", "0"], 2 ** 30],
    ["16Mi", ["100Mi"], 16 * 2 ** 20],
  ];
  for (const [sizeLimit, limits, size] of cases) {
    const bench = volumeBench();
    const volume: Volume = { name: "v", emptyDir: { medium: "Memory", ...(sizeLimit !== undefined && { sizeLimit }) } };
    await mounted(bench, [volume], limits.length > 0 ? { containers: limits.map(limited) } : {});
    assert.deepEqual(
      bench.host.commands,
      [["mount", "-t", "tmpfs", "-o", `size=${size}`, "tmpfs", directoryOf("empty-dir")]],
      `${sizeLimit} ${limits.join()}`,
    );
  }
});

test("an emptyDir in memory is limited by the pod-level limit, with or without container limits", async () => {
  const bench = volumeBench();
  const resources = { limits: { memory: "128Mi" }, requests: { memory: "64Mi" } };
  await mounted(bench, [{ name: "v", emptyDir: { medium: "Memory" } }], { resources });
  assert.equal(bench.host.commands[0]?.[4], `size=${128 * 2 ** 20}`);
});

test("does not mount an existing tmpfs again after a restart", async () => {
  const bench = volumeBench();
  bench.setSecret("s", { a: "1" });
  const volumes: Volume[] = [
    { name: "v", emptyDir: { medium: "Memory" } },
    { name: "w", secret: { secretName: "s" } },
  ];
  await mounted(bench, volumes);
  const [commands, changes] = [
    bench.host.commands.length,
    bench.host.files.changes.filter(({ kind: verb }) => verb !== "mkdir").length,
  ];
  await mounted(bench, volumes);
  assert.equal(bench.host.commands.length, commands);
  assert.equal(bench.host.files.changes.filter(({ kind: verb }) => verb !== "mkdir").length, changes);
});

test("mounts tmpfs with noswap if the kernel supports it", async () => {
  const bench = volumeBench();
  bench.host.files.put("/proc/sys/kernel/osrelease", { data: "6.4.2-x\n" });
  await mounted(bench, [{ name: "v", emptyDir: { medium: "Memory" } }]);
  assert.equal(bench.host.commands[0]?.[4], `size=${2 ** 30},noswap`);
});

test("without mount permission, uses a private directory on disk instead of tmpfs, with an event", async () => {
  const bench = volumeBench();
  bench.host.program("mount", () => 1);
  bench.host.files.put("/proc/self/status", { data: "CapEff:\t0000000000000000\n" });
  bench.setSecret("s", { a: "1" });
  await mounted(bench, [{ name: "v", secret: { secretName: "s" } }]);
  assert.equal((await bench.host.fs.lstat(directoryOf("secret").slice(0, -2))).mode, 0o700);
  assert.equal(await bench.text(`${directoryOf("secret")}/a`), "1");
  assert.match(bench.events.join("\n"), /^Node Warning PossibleMemoryBackedVolumesOnDisk: cannot mount tmpfs/);
});

test("does not write a secret to disk if mounting fails for another reason", async () => {
  const bench = volumeBench();
  bench.host.program("mount", () => 32);
  bench.setSecret("s", { a: "1" });
  assert.match(
    await refusal(bench, { name: "v", secret: { secretName: "s" } }),
    /mounting a tmpfs on .* failed: exit code 32/,
  );
  assert.deepEqual(bench.host.files.tree(directoryOf("secret")), []);
});

const asking = (...sizes: readonly string[]) => ({
  containers: sizes.map((size, index) => ({
    name: `c${index}`,
    image: "i",
    volumeMounts: [{ name: "v", mountPath: "/v" }],
    resources: { requests: { [`hugepages-${size}`]: "4Mi" } },
  })),
});

test("an emptyDir on huge pages uses its own page size or the requested one, and is mounted once", async () => {
  const cases = [
    ["HugePages", ["2Mi"], 2 * 2 ** 20],
    ["HugePages", ["2Mi", "2048Ki"], 2 * 2 ** 20],
    ["HugePages-1Gi", ["2Mi", "1Gi"], 2 ** 30],
  ] as const;
  for (const [medium, sizes, bytes] of cases) {
    const bench = volumeBench();
    const path = directoryOf("empty-dir");
    for (let starts = 0; starts < 2; starts += 1)
      await mounted(bench, [{ name: "v", emptyDir: { medium } }], asking(...sizes));
    assert.deepEqual(bench.host.commands, [["mount", "-t", "hugetlbfs", "-o", `pagesize=${bytes}`, "nodev", path]]);
  }
});

test("an emptyDir on huge pages honours pod-level requests", async () => {
  for (const medium of ["HugePages", "HugePages-2Mi"]) {
    const bench = volumeBench();
    await mounted(bench, [{ name: "v", emptyDir: { medium } }], {
      containers: [{ name: "c", image: "i", volumeMounts: [{ name: "v", mountPath: "/v" }] }],
      resources: { requests: { "hugepages-2Mi": "4Mi", cpu: "1" } },
    });
    assert.deepEqual(bench.host.commands[0]?.slice(0, 5), [
      "mount",
      "-t",
      "hugetlbfs",
      "-o",
      `pagesize=${2 * 2 ** 20}`,
    ]);
  }
});

test("rejects an unavailable medium in the kubelet's words", async () => {
  const refused = (medium: string, ...sizes: readonly string[]) =>
    refusal(volumeBench(), { name: "v", emptyDir: { medium } }, asking(...sizes));
  assert.equal(await refused("Tape", "2Mi"), failed('unknown storage medium "Tape"'));
  const unasked = (medium: string) =>
    failed(`medium ${medium}: hugePages storage requested, but there is no resource request for huge pages`);
  const bench = volumeBench();
  assert.equal(await refusal(bench, { name: "v", emptyDir: { medium: "HugePages" } }), unasked("HugePages"));
  assert.equal(await refused("HugePages-1Gi", "2Mi"), unasked("HugePages-1Gi"));
  assert.equal(
    await refused("HugePages", "2Mi", "1Gi"),
    failed("medium: HugePages can't be used if container requests multiple huge page sizes"),
  );
});

test("makes a volume with mount propagation a shared mount until its end, but not a hostPath", async () => {
  const bench = volumeBench();
  const volumes: Volume[] = [
    { name: "v", emptyDir: {} },
    { name: "w", emptyDir: {} },
    { name: "h", hostPath: { path: "/" } },
  ];
  const volumeMounts = [
    { name: "v", mountPath: "/v", mountPropagation: "Bidirectional" },
    { name: "w", mountPath: "/w", mountPropagation: "None" },
    { name: "h", mountPath: "/h", mountPropagation: "HostToContainer" },
  ];
  const pod = podWith(volumes, { containers: [{ name: "c", image: "i", volumeMounts }] });
  const stage = bench.start();
  await stage.mount(pod, never);
  await stage.mount(pod, never);
  const path = directoryOf("empty-dir");
  assert.deepEqual(bench.host.commands, [
    ["mount", "--bind", path, path],
    ["mount", "--make-shared", path],
  ]);
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), []);
});
