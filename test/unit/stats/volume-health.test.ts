import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { claimMetrics } from "../../../src/stats/claim-usage.ts";
import type { DiskUse } from "../../../src/stats/disk-stats.ts";
import { createVolumeHealth } from "../../../src/stats/node-stats.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const persistentVolumeClaim = (claimName: string) => ({ persistentVolumeClaim: { claimName } });
const pod = aPod({
  containers: [aContainer("c")],
  volumes: [
    { name: "good", ...persistentVolumeClaim("sound") },
    { name: "bad", ...persistentVolumeClaim("worn") },
    { name: "mute", ...persistentVolumeClaim("silent") },
  ],
});
const space = { at: 0, device: "", capacityBytes: 1, availableBytes: 1, inodes: 1, inodesFree: 1 };
const uses: Readonly<Record<string, DiskUse>> = {
  "/good": { ...space, condition: { abnormal: false, message: "" } },
  "/bad": { ...space, condition: { abnormal: true, message: "worn out" } },
  "/mute": space,
};

function rig() {
  const clock = fakeClock();
  const events = eventLines();
  const mounted = Object.keys(uses).map((hostPath) => {
    const persistent = { name: "pv", plugin: "p", isDevice: false, space: { driver: "d", volumeHandle: hostPath } };
    return [hostPath.slice(1), { hostPath, readOnly: false, persistent }] as const;
  });
  const seen = observe([aSandbox()], [aStatus(aContainer("c"), ContainerState.CONTAINER_RUNNING)]);
  const deps = {
    host: fakeHost({ clock }),
    desired: { get: () => pod },
    volumes: { mounted: () => new Map(mounted) },
    driverVolumeStats: async (path: string) => uses[path],
    podCache: { get: () => seen, list: () => [seen] },
    clock,
    log: silentLog(),
  };
  return { clock, events, deps };
}

test("emits one event per period for each abnormal volume", async () => {
  const { clock, events, deps } = rig();
  const stop = new AbortController();
  const running = createVolumeHealth({ ...deps, events, intervalMs: 60_000 }).run(stop.signal);
  await clock.advance(59_999);
  assert.deepEqual(events.lines, []);
  await clock.advance(1);
  const line = "Warning VolumeConditionAbnormal Volume bad: worn out";
  assert.deepEqual(events.lines, [line]);
  await clock.advance(60_000);
  assert.deepEqual(events.lines, [line, line]);
  stop.abort();
  await running;
});

test("the metric covers claims whose drivers report health", async () => {
  const text = await claimMetrics(rig().deps, never);
  const health = text.split("\n").filter((line) => line.startsWith("kubelet_volume_stats_health_status_abnormal{"));
  assert.deepEqual(health, [
    'kubelet_volume_stats_health_status_abnormal{namespace="default",persistentvolumeclaim="sound"} 0',
    'kubelet_volume_stats_health_status_abnormal{namespace="default",persistentvolumeclaim="worn"} 1',
  ]);
});
