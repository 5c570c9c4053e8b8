import assert from "node:assert/strict";
import { test } from "node:test";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  ContainerUser,
  ListContainersResponse,
  ListImagesResponse,
  ListPodSandboxResponse,
  StatusResponse,
} from "../../../src/gen/cri.ts";
import { NodeGetCapabilitiesResponse } from "../../../src/gen/csi.ts";
import { ListAndWatchResponse } from "../../../src/gen/device-plugin.ts";
import { type DecodeLimits, decodeBounded, pluginLimits, runtimeLimits } from "../../../src/lib/bounded-decode.ts";

const mebibyte = 1024 * 1024;

/** A message of maximum length that consists of empty entries of one field. */
function emptyEntries(field: number, { maxMessageBytes }: DecodeLimits): Buffer {
  const bytes = Buffer.alloc(maxMessageBytes);
  for (let at = 0; at < bytes.length; at += 2) bytes[at] = (field << 3) | 2;
  return bytes;
}

const within = (parts: (writer: BinaryWriter) => void): Uint8Array => {
  const writer = new BinaryWriter();
  parts(writer);
  return writer.finish();
};

const nested = within((writer) => {
  for (let at = 0; at < 2 * mebibyte; at += 1) writer.uint32(10).bytes(new Uint8Array());
});
const packed = within((writer) => writer.uint32(26).bytes(new Uint8Array(8 * mebibyte)));

const bombs: readonly (readonly [string, () => unknown])[] = [
  ["containers", () => decodeBounded(ListContainersResponse.decode, emptyEntries(1, runtimeLimits), runtimeLimits)],
  ["sandboxes", () => decodeBounded(ListPodSandboxResponse.decode, emptyEntries(1, runtimeLimits), runtimeLimits)],
  ["images", () => decodeBounded(ListImagesResponse.decode, emptyEntries(1, runtimeLimits), runtimeLimits)],
  ["entries of a map", () => decodeBounded(StatusResponse.decode, emptyEntries(2, runtimeLimits), runtimeLimits)],
  ["unknown fields", () => decodeBounded(StatusResponse.decode, emptyEntries(15, runtimeLimits), runtimeLimits)],
  ["devices", () => decodeBounded(ListAndWatchResponse.decode, emptyEntries(1, pluginLimits), pluginLimits)],
  [
    "capabilities",
    () => decodeBounded(NodeGetCapabilitiesResponse.decode, emptyEntries(1, pluginLimits), pluginLimits),
  ],
  [
    "entries two levels deep",
    () =>
      decodeBounded(
        StatusResponse.decode,
        within((writer) => writer.uint32(10).bytes(nested)),
        runtimeLimits,
      ),
  ],
  [
    "packed values",
    () =>
      decodeBounded(
        ContainerUser.decode,
        within((writer) => writer.uint32(10).bytes(packed)),
        runtimeLimits,
      ),
  ],
];

for (const [what, decode] of bombs)
  test(`rejects a message with too many ${what} before allocating much memory`, () => {
    const before = process.memoryUsage().heapUsed;
    assert.throws(decode, { code: "resource_exhausted", message: /^a message of \d+ bytes has too many entries/ });
    const grown = (process.memoryUsage().heapUsed - before) / mebibyte;
    assert.ok(grown < 96, `the heap grew by ${grown} MiB`);
  });

test("rejects an oversized message before reading it", () => {
  const limits = { maxMessageBytes: 10, maxDecodedBytes: mebibyte };
  assert.throws(() => decodeBounded(() => assert.fail("decoded"), new Uint8Array(11), limits), {
    code: "resource_exhausted",
    message: "a message of 11 bytes is longer than 10 bytes",
  });
});

test("decodes the lists of a node with 500 pods, 2,000 containers and 5,000 images", () => {
  const map = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`key-${at}`, "a value"]));
  const containers = Array.from({ length: 2_000 }, (_, at) => ({
    id: String(at),
    metadata: { name: "main", attempt: 1 },
    image: { image: "sha256:0", annotations: map(2) },
    labels: map(6),
    annotations: map(12),
  }));
  const images = Array.from({ length: 5_000 }, (_, at) => ({
    id: String(at),
    repoTags: ["a:1", "b:1"],
    repoDigests: ["a@sha256:0"],
    uid: { value: 0n },
    spec: { image: "a", annotations: map(4) },
  }));
  const listed = ListContainersResponse.encode(ListContainersResponse.fromPartial({ containers })).finish();
  const stored = ListImagesResponse.encode(ListImagesResponse.fromPartial({ images })).finish();
  assert.equal(decodeBounded(ListContainersResponse.decode, listed, runtimeLimits).containers.length, 2_000);
  assert.equal(decodeBounded(ListImagesResponse.decode, stored, runtimeLimits).images.length, 5_000);
});

test("decodes 10,000 plugin devices with their NUMA nodes", () => {
  const devices = Array.from({ length: 10_000 }, (_, at) => ({
    ID: `device-${at}`,
    health: "Healthy",
    topology: { nodes: [{ ID: 0n }] },
  }));
  const bytes = ListAndWatchResponse.encode(ListAndWatchResponse.fromPartial({ devices })).finish();
  assert.equal(decodeBounded(ListAndWatchResponse.decode, bytes, pluginLimits).devices.length, 10_000);
});

test("decodes 5,000 devices with long names, without counting the bytes of the names as entries", () => {
  const devices = Array.from({ length: 5000 }, (_, index) => ({
    ID: `gpu-${"x".repeat(50)}-${index}`,
    health: "Healthy",
  }));
  const bytes = ListAndWatchResponse.encode(ListAndWatchResponse.fromPartial({ devices })).finish();
  assert.equal(decodeBounded(ListAndWatchResponse.decode, bytes, pluginLimits).devices.length, 5000);
});

test("charges decoded and rejected messages to the target's budget", () => {
  const spent: number[] = [];
  const budget = { spend: (bytes: number) => void spent.push(bytes), exceeded: () => undefined };
  const sum = () => spent.splice(0).reduce((all, one) => all + one, 0);
  const two = ListContainersResponse.encode(
    ListContainersResponse.fromPartial({ containers: [{ id: "a" }, { id: "b" }] }),
  ).finish();
  decodeBounded(ListContainersResponse.decode, two, runtimeLimits, budget);
  const small = sum();
  assert.ok(small > 33_000 && small < 40_000, `charged ${small} bytes`);
  const bomb = emptyEntries(1, runtimeLimits);
  assert.throws(() => decodeBounded(ListContainersResponse.decode, bomb, runtimeLimits, budget));
  assert.ok(sum() >= bomb.length);
});
