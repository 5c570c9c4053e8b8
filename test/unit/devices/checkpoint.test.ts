import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeCheckpoint, encodeCheckpoint } from "../../../src/devices/checkpoint.ts";
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

test("the file is a kubelet's, and so is its checksum", () => {
  const { Data, Checksum } = JSON.parse(encodeCheckpoint(checkpoint));
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
  // As Go prints the data: keys of maps in their order, by number or by text.
  const print =
    "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)u1" +
    " ContainerName:(string)c ResourceName:(string)a.b/gpu" +
    " DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[y z] 2:[x] 10:[x]]" +
    " AllocResp:([]uint8)[10 6 10 1 65 18 1 98]}]" +
    " RegisteredDevices:(map[string][]string)map[a.b/gpu:[x y] b.c/nic:[]]}";
  assert.equal(Checksum, fnv32a(print));
});

test("nothing handed out is null, as Go writes a list that was never made", () => {
  const { Data, Checksum } = JSON.parse(encodeCheckpoint({ allocations: [], registered: new Map() }));
  assert.deepEqual(Data, { PodDeviceEntries: null, RegisteredDevices: {} });
  const print =
    "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil>" +
    " RegisteredDevices:(map[string][]string)map[]}";
  assert.equal(Checksum, fnv32a(print));
});

test("what was written is read again", () => {
  const read = decodeCheckpoint(encodeCheckpoint(checkpoint));
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
  ["half a file", '{"Data":{"PodDevi'],
  ["nothing", ""],
  ["another document", "[]"],
  ["no data", '{"Data":null,"Checksum":1}'],
  ["another list", '{"Data":{"PodDeviceEntries":{},"RegisteredDevices":{}},"Checksum":1}'],
  ["a wrong checksum", encodeCheckpoint(checkpoint).replace("u1", "u2")],
] as const)
  test(`a checkpoint of ${what} is damaged`, () => {
    assert.throws(() => decodeCheckpoint(text), { code: "invalid_argument", message: /checkpoint is corrupt/ });
  });
