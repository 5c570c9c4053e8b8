import assert from "node:assert/strict";
import { test } from "node:test";
import type { CsiNodeService } from "../../../src/pipeline.ts";
import type { Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, podWith, volumeBench } from "./volume-bench.ts";

const claims = 200;
/** Duration of each driver call, milliseconds. */
const callMs = 100;

const volumeOf = (name: string): Volume => ({ name: "v", persistentVolumeClaim: { claimName: name } });

function addClaim(bench: Bench, name: string): void {
  const metadata = { name, namespace: "default", uid: name };
  bench.claims.set(name, { metadata, spec: { volumeName: `pv-${name}` }, status: { phase: "Bound" } });
  const csi = { driver: "d", volumeHandle: name };
  const spec = { claimRef: metadata, volumeMode: "Filesystem", accessModes: ["ReadWriteMany"], csi };
  bench.volumes.set(`pv-${name}`, { metadata: { name: `pv-${name}` }, spec });
}

/** Slows down each call, and records how many are in progress: per volume, and in total. */
function slowed(bench: Bench) {
  const { storage, clock } = bench;
  const under = new Map<string, number>();
  const most = { ofOne: 0, ofAll: 0 };
  const driver = storage.driver("d");
  const slow =
    <Request extends { readonly volumeId: string }>(call: (request: Request) => Promise<void>) =>
    async (request: Request) => {
      const now = (under.get(request.volumeId) ?? 0) + 1;
      under.set(request.volumeId, now);
      most.ofOne = Math.max(most.ofOne, now);
      most.ofAll = Math.max(
        most.ofAll,
        [...under.values()].reduce((sum, count) => sum + count, 0),
      );
      await clock.sleep(callMs);
      await call(request);
      under.set(request.volumeId, now - 1);
    };
  const lasting: CsiNodeService = { ...driver, stage: slow(driver.stage), publish: slow(driver.publish) };
  storage.driver = () => lasting;
  return most;
}

test("200 claims take as long as one: calls run concurrently, except those for the same volume", async () => {
  const bench = volumeBench();
  const most = slowed(bench);
  const stage = bench.start();
  await stage.recover(never);
  const names = Array.from({ length: claims }, (_, index) => `claim-${index}`);
  for (const name of names) addClaim(bench, name);
  const podOf = (name: string, uid: string) => podWith([volumeOf(name)], {}, { uid, name: uid });
  const first = names.map((name, index) => stage.mount(podOf(name, `uid-${index}`), never));
  const second = stage.mount(podOf("claim-0", "uid-again"), never);
  const all = Promise.all([...first, second]);
  // Stage, publish, and publish to the second pod of one volume. If more calls were serialized, the test would wait for the clock
  // forever.
  for (let step = 0; step < 5; step += 1) await bench.clock.advance(callMs);
  await all;
  assert.deepEqual(most, { ofOne: 1, ofAll: claims });
  assert.equal(bench.storage.calls.filter((call) => call.startsWith("stage ")).length, claims);
  assert.equal(bench.storage.calls.filter((call) => call.startsWith("publish ")).length, claims + 1);
});

test("a driver that takes 110 seconds per step is called once per step, and delays no other volume", async () => {
  const bench = volumeBench();
  const { storage, clock } = bench;
  addClaim(bench, "slow");
  addClaim(bench, "quick");
  const slow = podWith([volumeOf("slow")], {}, { uid: "uid-slow", name: "slow" });
  const quick = podWith([volumeOf("quick")], {}, { uid: "uid-quick", name: "quick" });
  const stage = bench.start();
  let isSlow = true;
  storage.onStep(async () => {
    if (isSlow) await clock.sleep(55_000, never);
  });
  const first = stage.mount(slow, never).then(
    () => "mounted",
    (error: unknown) => String(error),
  );
  await clock.advance(1);
  isSlow = false;
  await stage.mount(quick, never);
  assert.ok(stage.mounted("uid-quick").has("v"));
  isSlow = true;
  for (let ms = 0; ms < 130_000; ms += 1_000) await clock.advance(1_000);
  assert.match(await first, /unmounted volumes=\[v\]/);
  const second = stage.mount(slow, never);
  for (let ms = 0; ms < 130_000; ms += 1_000) await clock.advance(1_000);
  await second;
  const asked = (name: string) =>
    storage.calls.filter((call) => call.startsWith(`${name} `) && call.includes("slow")).length;
  assert.deepEqual([asked("stage"), asked("publish")], [1, 1]);
  const end = stage.unmount("uid-slow", never);
  for (let ms = 0; ms < 230_000; ms += 1_000) await clock.advance(1_000);
  await end;
  assert.deepEqual([asked("unpublish"), asked("unstage")], [1, 1]);
  assert.ok(bench.host.files.mounted().every(({ path }) => !path.includes("uid-slow")));
  stage.stop();
});
