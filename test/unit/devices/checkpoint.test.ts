import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeDeviceCheckpoint, encodeDeviceCheckpoint } from "../../../src/devices/checkpoint.ts";
import { ContainerAllocateResponse } from "../../../src/gen/device-plugin.ts";
import { fnv32a } from "../../../src/pod/hash.ts";

const response = ContainerAllocateResponse.fromPartial({ envs: { A: "b" } });
const checkpoint = {
  allocations: [
    {
      uid: "u1",
      container: "c",
      resource: "a.b/gpu",
      devices: new Map([
        [10, ["x"]],
        [-1, ["y", "z"]],
        [2, ["x"]],
      ]),
      response,
    },
  ],
  registered: new Map([
    ["b.c/nic", []],
    ["a.b/gpu", ["x", "y"]],
  ]),
};

test("writes file and checksum in the kubelet's format", () => {
  const { Data, Checksum } = JSON.parse(encodeDeviceCheckpoint(checkpoint));
  assert.deepEqual(Data, {
    PodDeviceEntries: [
      {
        PodUID: "u1",
        ContainerName: "c",
        ResourceName: "a.b/gpu",
        DeviceIDs: { "-1": ["y", "z"], "2": ["x"], "10": ["x"] },
        AllocResp: "CgYKAUESAWI=",
      },
    ],
    RegisteredDevices: { "b.c/nic": [], "a.b/gpu": ["x", "y"] },
  });
  // Go's dump of the data: map keys sorted, as text or as numbers.
  const print =
    "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)u1" +
    " ContainerName:(string)c ResourceName:(string)a.b/gpu" +
    " DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[y z] 2:[x] 10:[x]]" +
    " AllocResp:([]uint8)[10 6 10 1 65 18 1 98]}]" +
    " RegisteredDevices:(map[string][]string)map[a.b/gpu:[x y] b.c/nic:[]]}";
  assert.equal(Checksum, fnv32a(print));
});

test("encodes an empty list of allocations as null, like Go's nil slice", () => {
  const { Data, Checksum } = JSON.parse(encodeDeviceCheckpoint({ allocations: [], registered: new Map() }));
  assert.deepEqual(Data, { PodDeviceEntries: null, RegisteredDevices: {} });
  const print =
    "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil>" +
    " RegisteredDevices:(map[string][]string)map[]}";
  assert.equal(Checksum, fnv32a(print));
});

test("decodes an encoded checkpoint unchanged", () => {
  const read = decodeDeviceCheckpoint(encodeDeviceCheckpoint(checkpoint));
  assert.deepEqual(read.registered, checkpoint.registered);
  const [allocation] = read.allocations;
  assert.deepEqual(allocation, { ...checkpoint.allocations[0], devices: allocation?.devices });
  assert.deepEqual(
    [...(allocation?.devices ?? [])].sort(([a], [b]) => a - b),
    [
      [-1, ["y", "z"]],
      [2, ["x"]],
      [10, ["x"]],
    ],
  );
});

for (const [what, text] of [
  ["truncated JSON", '{"Data":{"PodDevi'],
  ["no content", ""],
  ["a JSON document of another kind", "[]"],
  ["no data", '{"Data":null,"Checksum":1}'],
  ["a list of another type", '{"Data":{"PodDeviceEntries":{},"RegisteredDevices":{}},"Checksum":1}'],
  ["a wrong checksum", encodeDeviceCheckpoint(checkpoint).replace("u1", "u2")],
] as const)
  test(`rejects a checkpoint with ${what}`, () => {
    assert.throws(() => decodeDeviceCheckpoint(text), { code: "invalid_argument", message: /checkpoint is corrupt/ });
  });
