import assert from "node:assert/strict";
import { test } from "node:test";
import { flips, nodeVerdicts, withTimes } from "../../../src/node/conditions.ts";
import { createLinger, pressureOf, type Readings } from "../../../src/node/pressure.ts";
import type { Pressure } from "../../../src/pipeline.ts";

const well: Pressure = { memory: false, disk: false, pid: false };

test("a healthy node, Ready last, in the kubelet's words", () => {
  assert.deepEqual(nodeVerdicts(well, []), [
    {
      type: "MemoryPressure",
      status: "False",
      reason: "KubeletHasSufficientMemory",
      message: "kubelet has sufficient memory available",
    },
    {
      type: "DiskPressure",
      status: "False",
      reason: "KubeletHasNoDiskPressure",
      message: "kubelet has no disk pressure",
    },
    {
      type: "PIDPressure",
      status: "False",
      reason: "KubeletHasSufficientPID",
      message: "kubelet has sufficient PID available",
    },
    { type: "Ready", status: "True", reason: "KubeletReady", message: "kubelet is posting ready status" },
  ]);
});

test("problems make the node not ready: one verbatim, several in brackets; pressures are not problems", () => {
  const message = (problems: string[]) => nodeVerdicts({ ...well, memory: true }, problems).at(-1)?.message;
  assert.equal(message(["container runtime is down"]), "container runtime is down");
  assert.equal(message(["a", "b"]), "[a, b]");
  const verdicts = nodeVerdicts({ ...well, memory: true }, []);
  assert.deepEqual([verdicts[0]?.reason, verdicts.at(-1)?.status], ["KubeletHasInsufficientMemory", "True"]);
});

test("a target that cannot be read says nothing of pressure", () => {
  assert.deepEqual(
    nodeVerdicts(undefined, ["gone"]).map(({ type }) => type),
    ["Ready"],
  );
});

test("the transition time moves with the status alone, and flips are told", () => {
  const first = withTimes(nodeVerdicts(well, ["x"]), [], "T1");
  const second = withTimes(nodeVerdicts(well, ["y"]), first, "T2");
  assert.deepEqual([second.at(-1)?.lastTransitionTime, second.at(-1)?.lastHeartbeatTime], ["T1", "T2"]);
  const third = withTimes(nodeVerdicts({ ...well, disk: true }, []), second, "T3");
  assert.equal(third.at(-1)?.lastTransitionTime, "T3");
  assert.deepEqual(flips(first, second), []);
  assert.deepEqual(flips(second, third), ["NodeHasDiskPressure", "NodeReady"]);
  assert.deepEqual(flips(third, second), ["NodeHasNoDiskPressure", "NodeNotReady"]);
});

const plenty = { capacityBytes: 1000, availableBytes: 500, inodes: 1000, inodesFree: 500 };
const readings: Readings = {
  memoryBytes: 1000,
  workingSetBytes: 200,
  processes: 10,
  maxPid: 1000,
  nodeFs: plenty,
  imageFs: plenty,
};
const evictionHard = {
  "memory.available": "100",
  "nodefs.available": "10%",
  "nodefs.inodesFree": "5%",
  "imagefs.available": "15%",
  "pid.available": "10%",
};

test("pressure is being below a threshold, not at it", () => {
  const pressure = (change: Partial<Readings>) => pressureOf({ ...readings, ...change }, evictionHard);
  assert.deepEqual(pressure({}), well);
  assert.equal(pressure({ workingSetBytes: 900 }).memory, false);
  assert.equal(pressure({ workingSetBytes: 901 }).memory, true);
  assert.equal(pressure({ nodeFs: { ...plenty, availableBytes: 99 } }).disk, true);
  assert.equal(pressure({ nodeFs: { ...plenty, inodesFree: 49 } }).disk, true);
  assert.equal(pressure({ imageFs: { ...plenty, availableBytes: 149 } }).disk, true);
  assert.equal(pressure({ imageFs: undefined }).disk, false);
  assert.equal(pressure({ processes: 901 }).pid, true);
});

test("pressure stands until it has been gone for the transition period", () => {
  const linger = createLinger(300);
  assert.equal(linger({ ...well, memory: true }, 0).memory, true);
  assert.equal(linger(well, 299).memory, true);
  assert.equal(linger(well, 300).memory, false);
});
