import assert from "node:assert/strict";
import { test } from "node:test";
import { ImageSpec, PodSandboxConfig } from "../../../src/gen/cri.ts";
import { ensureImages } from "../../../src/runtime/images/ensure-images.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const never = new AbortController().signal;
const start = {
  pod: aPod(),
  container: aContainer("c"),
  sandbox: { id: "s", config: PodSandboxConfig.fromPartial({}) },
} as unknown as Parameters<typeof ensureImages>[1];

test("pulls the images of volumes before the container's image", async () => {
  const calls: string[] = [];
  const volumes = new Map([["v", ImageSpec.fromPartial({ image: "data:1" })]]);
  const puller = {
    ensureVolumes: async () => (calls.push("volumes"), volumes),
    ensure: async () => (calls.push("container"), { imageRef: "sha256:1" }),
  };
  assert.deepEqual(await ensureImages(puller, start, never), { volumes, imageRef: "sha256:1" });
  assert.deepEqual(calls, ["volumes", "container"]);
});

test("does not pull the container's image if a volume's cannot be pulled", async () => {
  const puller = {
    ensureVolumes: () => Promise.reject(new StartError("ErrImagePull", "no such image")),
    ensure: () => assert.fail("the container's image was pulled"),
  };
  await assert.rejects(ensureImages(puller, start, never), { reason: "ErrImagePull" });
});
