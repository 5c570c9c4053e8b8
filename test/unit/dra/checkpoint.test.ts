import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeClaimCheckpoint, encodeClaimCheckpoint } from "../../../src/dra/checkpoint.ts";

const claim = {
  uid: "u1",
  name: "claim",
  namespace: "ns",
  pods: new Set(["p1", "p2"]),
  drivers: new Map([
    [
      "gpu.example.com",
      [{ poolName: "node", deviceName: "gpu-0", requestNames: ["r"], cdiDeviceIds: ["example.com/gpu=0"] }],
    ],
    ["nic.example.com", []],
  ]),
};

test("writes the file in the kubelet's format", () => {
  const { Data, Checksum } = JSON.parse(encodeClaimCheckpoint([claim])) as { Data: string; Checksum: number };
  assert.equal(typeof Checksum, "number");
  assert.deepEqual(JSON.parse(Data), {
    kind: "DRACheckpoint",
    apiVersion: "checkpoint.dra.kubelet.k8s.io/v1",
    ClaimInfoStateList: [
      {
        ClaimUID: "u1",
        ClaimName: "claim",
        Namespace: "ns",
        PodUIDs: { p1: {}, p2: {} },
        DriverState: {
          "gpu.example.com": {
            Devices: [
              {
                PoolName: "node",
                DeviceName: "gpu-0",
                ShareID: null,
                RequestNames: ["r"],
                CDIDeviceIDs: ["example.com/gpu=0"],
              },
            ],
          },
          "nic.example.com": { Devices: [] },
        },
      },
    ],
  });
});

test("reads the file that it wrote, and a kubelet's file with null lists", () => {
  assert.deepEqual(decodeClaimCheckpoint(Buffer.from(encodeClaimCheckpoint([claim]))), [claim]);
  // Written by k8s.io/kubernetes v1.36.3.
  const data = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}';
  assert.deepEqual(decodeClaimCheckpoint(Buffer.from(JSON.stringify({ Data: data, Checksum: 4010664294 }))), []);
});

test("rejects a truncated file, and one with a wrong checksum", () => {
  const text = encodeClaimCheckpoint([claim]);
  assert.throws(() => decodeClaimCheckpoint(Buffer.from(text.slice(0, -9))), { code: "invalid_argument" });
  assert.throws(() => decodeClaimCheckpoint(Buffer.from(text.replace("gpu-0", "gpu-1"))), /checksum mismatch/);
});
