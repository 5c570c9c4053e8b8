import assert from "node:assert/strict";
import { test } from "node:test";
import { type PreparedDevice, createClaimRecords } from "../../../src/dra/claim-records.ts";
import { claimHealth, dynamicResources } from "../../../src/dra/container-claims.ts";
import type { DeviceHealth } from "../../../src/dra/device-health.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const [gpus, nics] = ["gpu.example.com", "nic.example.com"];
const device = (deviceName: string, more: Partial<PreparedDevice> = {}): PreparedDevice => ({
  poolName: "pool",
  deviceName,
  requestNames: [],
  cdiDeviceIds: [],
  ...more,
});

/** A pod whose claim has a GPU for one request, with a CDI device, and two NICs of another driver for the other. */
function claimed(uses: readonly { readonly name: string; readonly request?: string }[]) {
  const container = aContainer("c", { resources: { claims: [...uses] } });
  const pod = aPod({
    resourceClaims: [{ name: "own", resourceClaimName: "claim" }],
    containers: [container, aContainer("other")],
    initContainers: [aContainer("init", { resources: { claims: [...uses] } })],
  });
  const records = createClaimRecords();
  const { namespace, uid } = pod.metadata;
  const claim = records.addPod({ uid: "u", name: "claim", namespace }, [gpus, nics], uid);
  records.setDevices(claim, gpus, [device("gpu-0", { requestNames: ["gpu"], cdiDeviceIds: ["x/gpu=0", "x/gpu=all"] })]);
  records.setDevices(claim, nics, [
    device("nic-0", { requestNames: ["nic"] }),
    device("nic-1", { requestNames: ["nic"] }),
  ]);
  const known: Readonly<Record<string, DeviceHealth>> = {
    "gpu-0": { health: "Unhealthy", message: "hot" },
    "nic-0": { health: "Healthy", message: "" },
  };
  const health = {
    get: (_driver: string, { deviceName }: { deviceName: string }) =>
      known[deviceName] ?? ({ health: "Unknown", message: "" } as const),
  };
  const shown = (name: string, withMessages = true) => claimHealth({ records, health }, pod, name, withMessages);
  return { pod, container, records, shown };
}

test("shows the devices of each claim that a container uses, by CDI device or by driver, pool and device", () => {
  const { shown } = claimed([{ name: "own" }]);
  assert.deepEqual(shown("c"), [
    {
      name: "claim:own",
      resources: [
        { resourceID: "x/gpu=0", health: "Unhealthy", message: "hot" },
        { resourceID: "nic.example.com/pool/nic-0", health: "Healthy" },
        { resourceID: "nic.example.com/pool/nic-1", health: "Unknown" },
      ],
    },
  ]);
});

test("shows only the devices of the request or subrequest that a container uses", () => {
  const { shown } = claimed([{ name: "own", request: "gpu" }]);
  const gpu = { resourceID: "x/gpu=0", health: "Unhealthy" };
  assert.deepEqual(shown("c", false), [{ name: "claim:own/gpu", resources: [gpu] }]);
  const sub = claimed([{ name: "own", request: "gpu/large" }]);
  assert.deepEqual(sub.shown("c", false), [{ name: "claim:own/gpu/large", resources: [gpu] }]);
});

test("shows nothing for a container without claims, an init container or a claim that does not exist yet", () => {
  const { shown, records } = claimed([{ name: "own" }]);
  assert.deepEqual([shown("other"), shown("init"), shown("missing")], [[], [], []]);
  records.restore([]);
  assert.deepEqual(shown("c"), []);
  const created = aContainer("c", { resources: { claims: [{ name: "created" }] } });
  const pod = aPod({
    resourceClaims: [{ name: "created", resourceClaimTemplateName: "template" }],
    containers: [created],
  });
  const health = { get: () => assert.fail("no device is known") };
  assert.deepEqual(claimHealth({ records, health }, pod, "c", true), []);
  assert.deepEqual(dynamicResources(records, pod, created), []);
});

test("lists a claim only once for monitoring agents, with all of its devices", () => {
  const { pod, container, records } = claimed([
    { name: "own", request: "gpu" },
    { name: "own", request: "nic" },
  ]);
  const common = { poolName: "pool", shareId: undefined };
  const cdiDevices = [{ name: "x/gpu=0" }, { name: "x/gpu=all" }];
  assert.deepEqual(dynamicResources(records, pod, container), [
    {
      claimName: "claim",
      claimNamespace: pod.metadata.namespace,
      claimResources: [
        { ...common, driverName: gpus, deviceName: "gpu-0", cdiDevices },
        { ...common, driverName: nics, deviceName: "nic-0", cdiDevices: [] },
        { ...common, driverName: nics, deviceName: "nic-1", cdiDevices: [] },
      ],
    },
  ]);
});
