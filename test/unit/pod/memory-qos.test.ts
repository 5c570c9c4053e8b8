import assert from "node:assert/strict";
import { test } from "node:test";
import { containerMemoryQos, podMemoryProtection } from "../../../src/pod/memory-qos.ts";
import { type ResourceList, containerResources } from "../../../src/pod/resources.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const Mi = 2 ** 20;
const allocatable = 1024 * Mi;
const sized = (requests: ResourceList, limits: ResourceList) => {
  const container = aContainer("c", { resources: { requests, limits } });
  return { container, pod: aPod({ containers: [container] }) };
};

test("memory.high is between the request and the limit, or the node's allocatable memory", () => {
  const high = (requests: ResourceList, limits: ResourceList, throttlingFactor = 0.9) => {
    const { pod, container } = sized(requests, limits);
    return containerMemoryQos(pod, container, { throttlingFactor, reserves: false }, allocatable)["memory.high"];
  };
  assert.equal(high({ memory: "100Mi" }, { memory: "200Mi" }), String(190 * Mi));
  assert.equal(high({}, { memory: "200Mi" }, 0.5), String(100 * Mi));
  assert.equal(high({ memory: "24Mi" }, {}), String(924 * Mi));
  assert.equal(high({ memory: "1" }, { memory: "10001" }, 0.5), "4096", "whole pages");
  assert.equal(high({ memory: "200Mi" }, { memory: "200Mi" }), undefined, "no throttling below the limit");
  assert.equal(
    high({ memory: "4095" }, { memory: "4096" }, 0.1),
    undefined,
    "memory.high is not set below the request",
  );
});

test("TieredReservation sets memory.min for Guaranteed and memory.low for Burstable pods", () => {
  const qos = { throttlingFactor: 0.9, reserves: true };
  const guaranteed = sized({ memory: "64Mi", cpu: "1" }, { memory: "64Mi", cpu: "1" });
  const burstable = sized({ memory: "64Mi" }, {});
  const free = sized({}, {});
  const bytes = 64 * Mi;
  const of = ({ pod, container }: typeof free) => {
    const { "memory.min": min, "memory.low": low } = containerMemoryQos(pod, container, qos, allocatable);
    return [min, low];
  };
  assert.deepEqual(
    [of(guaranteed), of(burstable), of(free)],
    [
      [String(bytes), undefined],
      [undefined, String(bytes)],
      ["0", "0"],
    ],
  );
  assert.deepEqual(podMemoryProtection(guaranteed.pod, bytes), { memoryMinBytes: bytes });
  assert.deepEqual(podMemoryProtection(burstable.pod, bytes), { memoryLowBytes: bytes });
  assert.deepEqual(podMemoryProtection(free.pod, 0), {});
});

test("applies only to cgroup v2 with the feature gate, and excludes reserved memory", () => {
  const { pod, container } = sized({ memory: "100Mi" }, {});
  const of = (cgroupV2: boolean, isOn: boolean) =>
    containerResources({
      pod,
      container,
      cpuCfsQuota: true,
      cpuCfsPeriodUs: 100_000,
      singleProcessOomKill: true,
      limitedSwap: false,
      target: { memoryBytes: 1100 * Mi, swapBytes: 0, hugePageSizes: [], cgroupV2, swapController: false },
      ...(isOn && { memoryQos: { throttlingFactor: 0.5, reserves: false, reservedBytes: 100 * Mi } }),
    }).unified;
  assert.deepEqual(of(true, true), { "memory.min": "0", "memory.low": "0", "memory.high": String(550 * Mi) });
  assert.deepEqual([of(false, true), of(true, false)], [{}, {}]);
});
