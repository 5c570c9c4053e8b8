import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { finished } from "node:stream/promises";
import { test } from "node:test";
import { ListContainersResponse, ListImagesResponse, ListPodSandboxResponse } from "../../../src/gen/cri.ts";
import { decodeBounded, runtimeLimits } from "../../../src/lib/bounded-decode.ts";
import { chargeStream, createTargetBudget } from "../../../src/lib/target-budget.ts";
import { fakeClock } from "../../fakes/clock.ts";

const mebibyte = 1024 * 1024;
const exceeded = { code: "resource_exhausted", message: /^the target sends more data than graftlet accepts/ };

test("allows decoding 512 MiB from a target at once, and 64 MiB per second thereafter", async () => {
  const clock = fakeClock();
  const budget = createTargetBudget({ clock });
  budget.spend(512 * mebibyte);
  for (let second = 0; second < 60; second += 1) {
    await clock.advance(1_000);
    budget.spend(64 * mebibyte);
  }
  assert.equal(budget.exceeded(), undefined);
});

test("rejects a target that exceeds its budget for 30 seconds, and logs the reason once", async () => {
  const clock = fakeClock();
  const told: string[] = [];
  const budget = createTargetBudget({ clock, onExceeded: (message) => void told.push(message) });
  budget.spend(512 * mebibyte);
  assert.throws(() => budget.spend(1), exceeded);
  await clock.advance(29_999);
  assert.throws(() => budget.spend(1), exceeded);
  assert.match(budget.exceeded() ?? "", exceeded.message);
  assert.equal(told.length, 1);
  await clock.advance(1);
  assert.equal(budget.exceeded(), undefined);
  budget.spend(512 * mebibyte);
});

test("relisting 500 pods and 5,000 images every second is within the budget", async () => {
  const clock = fakeClock();
  const budget = createTargetBudget({ clock });
  const map = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`example.com/key-${at}`, `the value of key ${at}`]));
  const id = (at: number) => String(at).padStart(64, "0");
  const containers = Array.from({ length: 2_000 }, (_, at) => ({
    id: id(at),
    podSandboxId: id(at),
    metadata: { name: "main", attempt: 1 },
    image: { image: `sha256:${id(at)}`, annotations: map(2) },
    imageRef: `sha256:${id(at)}`,
    labels: map(6),
    annotations: map(8),
  }));
  const items = Array.from({ length: 500 }, (_, at) => ({
    id: id(at),
    metadata: { name: "a-pod", uid: id(at), namespace: "default" },
    labels: map(15),
    annotations: map(20),
  }));
  const images = Array.from({ length: 5_000 }, (_, at) => ({
    id: id(at),
    repoTags: ["registry.example.com/an/image:1.0"],
    repoDigests: [`registry.example.com/an/image@sha256:${id(at)}`],
    spec: { image: id(at), annotations: map(2) },
  }));
  const containersAnswer = ListContainersResponse.encode(ListContainersResponse.fromPartial({ containers })).finish();
  const sandboxesAnswer = ListPodSandboxResponse.encode(ListPodSandboxResponse.fromPartial({ items })).finish();
  const imagesAnswer = ListImagesResponse.encode(ListImagesResponse.fromPartial({ images })).finish();
  let relist = 0;
  const counting = { spend: (bytes: number) => void (relist += bytes), exceeded: () => undefined };
  decodeBounded(ListContainersResponse.decode, containersAnswer, runtimeLimits, counting);
  decodeBounded(ListPodSandboxResponse.decode, sandboxesAnswer, runtimeLimits, counting);
  decodeBounded(ListImagesResponse.decode, imagesAnswer, runtimeLimits, counting);
  for (let second = 0; second < 600; second += 1) {
    budget.spend(relist);
    await clock.advance(1_000);
  }
  assert.equal(budget.exceeded(), undefined, `a relist takes ${relist} bytes`);
});

test("ends a stream that exceeds the budget, and charges a stream that does not", async () => {
  const budget = createTargetBudget({ clock: fakeClock() });
  const stream = new PassThrough();
  const read: number[] = [];
  stream.on("data", (chunk: Buffer) => void read.push(chunk.length));
  chargeStream(stream, budget);
  stream.write(Buffer.alloc(100));
  budget.spend(512 * mebibyte - 100);
  stream.write(Buffer.alloc(1));
  await assert.rejects(finished(stream), exceeded);
  assert.deepEqual(read, [100, 1]);
});
