import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Container } from "../../../src/objects.ts";
import {
  containerResources,
  cpuAndMemory,
  isPodLimited,
  milliCpuToQuota,
  milliCpuToShares,
  oomScoreAdjust,
  pageSizeName,
  podLimits,
  podRequests,
} from "../../../src/pod/resources.ts";
import { qosClass } from "../../../src/pod/qos.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const settings = { cpuCfsQuota: true, cpuCfsPeriodUs: 100_000 };
const target = {
  memoryBytes: 4 * 2 ** 30,
  swapBytes: 2 ** 30,
  hugePageSizes: ["2MB", "1GB"],
  cgroupV2: false,
  swapController: false,
};
const sized = (name: string, requests: object, limits: object = {}, more: Partial<Container> = {}) =>
  aContainer(name, { resources: { requests: { ...requests }, limits: { ...limits } }, ...more });

describe("CPU shares and quota of a container", () => {
  it("a CPU request becomes shares between 2 and 262144", () => {
    assert.deepEqual([0, 1, 100, 1000, 1_000_000].map(milliCpuToShares), [2, 2, 102, 1024, 262_144]);
  });
  it("a CPU limit becomes a quota of at least a millisecond, or none without a limit", () => {
    assert.deepEqual(
      [0, 1, 500, 2000].map((milli) => milliCpuToQuota(milli, 100_000)),
      [0, 1000, 50_000, 200_000],
    );
  });
  it("a CPU request defaults to the limit", () => {
    const amounts = { cpuRequest: undefined, cpuLimit: "500m", memoryLimit: "64Mi" };
    const { cpuShares, cpuQuota, cpuPeriod, memoryLimitInBytes } = cpuAndMemory(amounts, settings);
    assert.deepEqual([cpuShares, cpuQuota, cpuPeriod, memoryLimitInBytes], [512n, 50_000n, 100_000n, 67_108_864n]);
    assert.equal(cpuAndMemory({ ...amounts, cpuRequest: "0" }, settings).cpuShares, 2n);
    const free = cpuAndMemory(amounts, { ...settings, cpuCfsQuota: false });
    assert.deepEqual([free.cpuQuota, free.cpuPeriod], [0n, 0n]);
  });
});

describe("a container's resources", () => {
  const container = sized("c", { cpu: "100m" }, { memory: "64Mi", "hugepages-2Mi": "4Mi" });
  const make = (more: Partial<typeof target>, singleProcessOomKill = false) =>
    containerResources({
      ...settings,
      pod: aPod({ containers: [container] }),
      container,
      target: { ...target, ...more },
      singleProcessOomKill,
      limitedSwap: false,
    });
  it("a container's resources limit all huge page sizes", () => {
    assert.deepEqual(make({}).hugepageLimits, [
      { pageSize: "2MB", limit: 4_194_304n },
      { pageSize: "1GB", limit: 0n },
    ]);
  });
  it("a container's resources grant no swap if the target can limit it", () => {
    assert.equal(make({}).memorySwapLimitInBytes, 0n);
    assert.equal(make({ swapController: true }).memorySwapLimitInBytes, 67_108_864n);
    assert.deepEqual(make({ swapController: true, cgroupV2: true }, true).unified, { "memory.swap.max": "0" });
  });
  it("a container's resources make the kernel OOM-kill the whole container on cgroup v2 unless configured otherwise", () => {
    assert.deepEqual(make({ cgroupV2: true }).unified, { "memory.oom.group": "1" });
    assert.deepEqual(make({ cgroupV2: true }, true).unified, {});
    assert.deepEqual(make({}).unified, {});
  });
});

describe("oom_score_adj of a container", () => {
  const memory = 4 * 2 ** 30;
  const full = { cpu: "1", memory: "1Gi" };
  const score = (container: Container, spec: object = {}) =>
    oomScoreAdjust(aPod({ containers: [container], ...spec }), container, memory);
  it("oom_score_adj follows the QoS class", () => {
    assert.equal(score(sized("c", full, full)), -997);
    assert.equal(score(aContainer("c")), 1000);
    assert.equal(score(aContainer("c"), { priorityClassName: "system-node-critical" }), -997);
    assert.equal(score(sized("c", { memory: "1Gi" })), 750);
    assert.equal(score(sized("c", { cpu: "1" })), 999);
    assert.equal(score(sized("c", { memory: "4Gi" })), 3);
  });
  it("oom_score_adj of a sidecar is at most the lowest of the main containers", () => {
    const sidecar = sized("s", { memory: "1Mi" }, {}, { restartPolicy: "Always" });
    const pod = aPod({
      containers: [sized("a", { memory: "1Gi" }), sized("b", { memory: "2Gi" })],
      initContainers: [sidecar],
    });
    assert.equal(oomScoreAdjust(pod, sidecar, memory), 750);
  });
});

describe("a pod's requests and limits", () => {
  const main = [sized("a", { cpu: "100m", memory: "64Mi" }, { cpu: "1" }), sized("b", { cpu: "200m" })];
  it("a pod's request is the sum of its containers, or the largest init container", () => {
    const pod = aPod({
      containers: main,
      initContainers: [sized("i", { cpu: "250m", memory: "1Gi" }), sized("j", { cpu: "50m" })],
    });
    assert.deepEqual(podRequests(pod, { overhead: false }), { cpu: "300m", memory: "1Gi" });
    assert.deepEqual(podLimits(pod, { overhead: true }), { cpu: "1" });
  });
  it("a pod's request adds sidecars to the containers that run after them", () => {
    const sidecar = sized("s", { cpu: "100m" }, {}, { restartPolicy: "Always" });
    const pod = aPod({ containers: main, initContainers: [sidecar, sized("i", { cpu: "350m" })] });
    assert.equal(podRequests(pod, { overhead: false })["cpu"], "450m");
  });
  it("a pod's request includes pod overhead if the caller asks for it", () => {
    const pod = aPod({ containers: main, overhead: { cpu: "50m", memory: "8Mi" } });
    assert.equal(podRequests(pod, { overhead: true })["cpu"], "350m");
    assert.equal(podRequests(pod, { overhead: false })["cpu"], "300m");
    // Overhead does not limit an otherwise unlimited resource.
    assert.deepEqual(podLimits(pod, { overhead: true }), { cpu: "1050m" });
    assert.deepEqual(podLimits(pod, { overhead: false }), { cpu: "1" });
  });
});

describe("pod-level resources", () => {
  const free = aContainer("free");
  const own = sized("own", { cpu: "100m", memory: "1Gi" }, { cpu: "200m", "hugepages-2Mi": "2Mi" });
  const pod = aPod({
    containers: [free, own],
    initContainers: [aContainer("i")],
    overhead: { cpu: "1" },
    resources: {
      requests: { cpu: "500m", memory: "2560Mi", "example.com/x": "9" },
      limits: { cpu: "2", memory: "4Gi", "hugepages-2Mi": "8Mi" },
    },
  });
  it("pod-level resources override the containers' for resource types that support it", () => {
    const { cpu, memory, ...rest } = podRequests(pod, { overhead: true });
    assert.deepEqual([cpu, memory, rest], ["1500m", "2560Mi", {}]);
    assert.equal(podLimits(pod, { overhead: true })["cpu"], "3");
  });
  it("pod-level resources limit containers without a limit of their own", () => {
    const of = (container: Container) => {
      const { cpuQuota, cpuShares, memoryLimitInBytes, hugepageLimits } = containerResources({
        ...settings,
        pod,
        container,
        target,
        singleProcessOomKill: false,
        limitedSwap: false,
      });
      return [cpuQuota, cpuShares, memoryLimitInBytes, hugepageLimits[0]?.limit];
    };
    assert.deepEqual(of(free), [200_000n, 2048n, 4_294_967_296n, 8_388_608n]);
    assert.deepEqual(of(own), [20_000n, 102n, 4_294_967_296n, 2_097_152n]);
    const zero = sized("zero", { cpu: "0" }, { cpu: "0", memory: "0" });
    assert.deepEqual(of(zero).slice(0, 3), [200_000n, 2n, 4_294_967_296n], "a limit of 0 is none");
  });
  it("pod-level resources in excess of the containers' sum count for all containers in oom_score_adj", () => {
    // 1.5 GiB for three containers, of 4 GiB.
    assert.equal(oomScoreAdjust(pod, free, target.memoryBytes), 875);
    assert.equal(oomScoreAdjust(pod, own, target.memoryBytes), 625);
  });
  it("pod-level resources determine the QoS class", () => {
    const classOf = (resources: object) => qosClass(aPod({ containers: [own], resources }).spec);
    const same = { cpu: "1", memory: "1Gi" };
    assert.equal(classOf({ requests: same, limits: same }), "Guaranteed");
    assert.equal(classOf({ limits: { cpu: "1" } }), "Burstable");
    assert.equal(classOf({}), "BestEffort");
  });
});

describe("names of page sizes", () => {
  it("page sizes are formatted as in cgroup file names", () => {
    assert.deepEqual([65_536, 2_097_152, 2 ** 30].map(pageSizeName), ["64KB", "2MB", "1GB"]);
  });
});

describe("limits that apply to a whole pod", () => {
  const limited = { resources: { limits: { cpu: "100m" } } };
  const sidecar = (more: Partial<Container>) => aContainer("s", { restartPolicy: "Always", ...more });
  const main = aContainer("c", limited);
  const table: readonly (readonly [what: string, init: readonly Container[], holds: boolean])[] = [
    ["a pod has a limit if each of its containers has one", [aContainer("i", limited)], true],
    ["a pod has no limit if an init container has none", [aContainer("i")], false],
    [
      "a pod has a limit if a sidecar before an unlimited init container has one",
      [sidecar(limited), aContainer("i")],
      true,
    ],
    [
      "a pod has no limit if the sidecar comes after the unlimited init container",
      [aContainer("i"), sidecar(limited)],
      false,
    ],
    ["a pod has no limit if a sidecar has none", [sidecar({}), aContainer("i", limited)], false],
  ];
  for (const [what, initContainers, holds] of table)
    it(what, () =>
      assert.equal(isPodLimited(aPod({ initContainers: [...initContainers], containers: [main] }), "cpu"), holds),
    );
});
