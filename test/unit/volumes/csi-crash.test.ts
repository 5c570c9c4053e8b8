import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import type { Volume } from "../../../src/objects.ts";
import { aContainer } from "../../fakes/pods.ts";
import { loopDevices } from "../../fakes/host-programs.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, podWith, rootDir, volumeBench } from "./volume-bench.ts";

const volumes: readonly Volume[] = ["files", "raw"].map((name) => ({
  name,
  persistentVolumeClaim: { claimName: name },
}));
const pod = podWith(volumes, {
  containers: [
    aContainer("c", {
      volumeMounts: [{ name: "files", mountPath: "/files" }],
      volumeDevices: [{ name: "raw", devicePath: "/dev/raw" }],
    }),
  ],
});
const plugin = `${rootDir}/plugins/kubernetes.io/csi`;

/** Bench with two CSI volumes, one mounted and one used as a block device. */
function bound(): Bench {
  const bench = volumeBench();
  for (const name of ["files", "raw"]) {
    const metadata = { name, namespace: "default", uid: name };
    bench.claims.set(name, { metadata, spec: { volumeName: name }, status: { phase: "Bound" } });
    const volumeMode = name === "raw" ? "Block" : "Filesystem";
    bench.volumes.set(name, {
      metadata: { name },
      spec: { claimRef: metadata, volumeMode, csi: { driver: "d", volumeHandle: `h-${name}` } },
    });
  }
  return bench;
}

/** Lets a process make the given number of steps (file changes, and halves of driver calls), after which it is dead and does
 *  nothing more.
 *  @returns whether it completed. */
async function broken(bench: Bench, steps: number, work: () => Promise<unknown>): Promise<boolean> {
  let left = steps;
  let more = 40;
  const step = () => {
    more = 40;
    return left-- > 0 ? undefined : new Promise<void>(() => {});
  };
  bench.host.files.onChange(step);
  bench.storage.onStep(step);
  const end = { isThere: false };
  void work().then(() => (end.isThere = true));
  while (more-- > 0 && !end.isThere) await turn();
  bench.host.files.onChange(undefined);
  bench.storage.onStep(undefined);
  return end.isThere;
}

/** Everything left of the volumes on the target. */
async function left({ host }: Bench): Promise<readonly string[]> {
  const below = (path: string) =>
    host.fs.stat(path).then(
      () => host.files.tree(path),
      () => [],
    );
  const mounts = host.files.mounted().map(({ path }) => path);
  const loops = await loopDevices(host.files);
  const paths = [...mounts, ...loops.keys(), ...(await below(`${rootDir}/pods`)), ...(await below(plugin))];
  const around = ["/d", "/volumeDevices", "/volumeDevices/staging", "/volumeDevices/publish"];
  return paths.filter((path) => !around.some((name) => path === `${plugin}${name}`));
}

test("killed at any step of a start, the next process starts the pod, or removes everything if it is gone", async () => {
  for (let steps = 0; ; steps++) {
    const ends: boolean[] = [];
    for (const stays of [true, false]) {
      const bench = bound();
      ends.push(await broken(bench, steps, () => bench.start().mount(pod, never)));
      const next = bench.start();
      await next.recover(never);
      if (stays) {
        await next.mount(pod, never);
        const mounts = bench.host.files.mounted().map(({ path }) => path);
        assert.equal(mounts.length, 5, `after ${steps} steps: ${mounts.join(" ")}`);
        assert.equal(new Set(mounts).size, 5);
        assert.deepEqual(
          [...(await loopDevices(bench.host.files)).values()],
          [`${plugin}/volumeDevices/raw/dev/uid-1`],
        );
      }
      await next.unmount("uid-1", never);
      await bench.clock.advance(5_000);
      await next.removePodDirectory("uid-1", never);
      assert.deepEqual(await left(bench), [], `after ${steps} steps, ${stays ? "started" : "gone"}`);
      next.stop();
    }
    if (ends.every(Boolean)) break;
  }
});

test("after a kill at any step of a pod's teardown, the next process removes what is left", async () => {
  for (let steps = 0; ; steps++) {
    const bench = bound();
    const first = bench.start();
    await first.mount(pod, never);
    const whole = await broken(bench, steps, async () => {
      await first.unmount("uid-1", never);
      await first.removePodDirectory("uid-1", never);
    });
    const next = bench.start();
    await next.recover(never);
    for (const uid of await next.podDirectories(never)) {
      await next.unmount(uid, never);
      await next.removePodDirectory(uid, never);
    }
    await bench.clock.advance(5_000);
    assert.deepEqual(await left(bench), [], `after ${steps} steps`);
    next.stop();
    if (whole) break;
  }
});
