import assert from "node:assert/strict";
import { test } from "node:test";
import { changedConditionReasons, kubeletConditions, withTimes } from "../../../src/node/conditions.ts";
import type { Pressure } from "../../../src/pipeline.ts";

const well: Pressure = { memory: false, disk: false, pid: false };

test("writes the conditions of a healthy node in the kubelet's words, with Ready last", () => {
  assert.deepEqual(kubeletConditions(well, []), [
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

test("lists problems but not pressures in the Ready message, in brackets if there are several", () => {
  const message = (problems: string[]) => kubeletConditions({ ...well, memory: true }, problems).at(-1)?.message;
  assert.equal(message(["container runtime is down"]), "container runtime is down");
  assert.equal(message(["a", "b"]), "[a, b]");
  const verdicts = kubeletConditions({ ...well, memory: true }, []);
  assert.deepEqual([verdicts[0]?.reason, verdicts.at(-1)?.status], ["KubeletHasInsufficientMemory", "True"]);
});

test("reports no pressure for an unreadable target", () => {
  assert.deepEqual(
    kubeletConditions(undefined, ["gone"]).map(({ type }) => type),
    ["Ready"],
  );
});

test("updates the transition time only when the status changes, and reports changes", () => {
  const first = withTimes(kubeletConditions(well, ["x"]), [], "T1");
  const second = withTimes(kubeletConditions(well, ["y"]), first, "T2");
  assert.deepEqual([second.at(-1)?.lastTransitionTime, second.at(-1)?.lastHeartbeatTime], ["T1", "T2"]);
  const third = withTimes(kubeletConditions({ ...well, disk: true }, []), second, "T3");
  assert.equal(third.at(-1)?.lastTransitionTime, "T3");
  assert.deepEqual(changedConditionReasons(first, second), []);
  assert.deepEqual(changedConditionReasons(second, third), ["NodeHasDiskPressure", "NodeReady"]);
  assert.deepEqual(changedConditionReasons(third, second), ["NodeHasNoDiskPressure", "NodeNotReady"]);
});
