import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { ImageSpec, MountPropagation, PodSandboxConfig } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Volume } from "../../../src/objects.ts";
import { createImagePuller } from "../../../src/runtime/images/puller.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { usedVolumes } from "../../../src/volumes/paths.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod, observe } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { unbounded } from "./images-rig.ts";
import { podOf, preparerIn, signal } from "./preparer.ts";
import { imageVolumes } from "../../../src/pod/object-references.ts";

function aVolume(name: string, reference: string, pullPolicy?: string): Volume {
  return { name, image: { reference, ...(pullPolicy !== undefined && { pullPolicy }) } };
}

function mountsOf(...names: readonly string[]) {
  return names.map((name, at) => ({ name, mountPath: `/${at}` }));
}

function setUp(...volumes: readonly Volume[]) {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock });
  const events: string[] = [];
  const puller = createImagePuller({
    pullManager: undefined,
    images: runtime,
    objects: { secret: () => Promise.reject(new CodedError("not_found", "no secrets")) },
    events: {
      event: ({ kind, fieldPath }, _type, reason, message) =>
        void events.push(`${fieldPath ?? kind} ${reason}: ${message}`),
    },
    clock,
    log: silentLog(),
    ...unbounded,
  });
  const ensure = async (...mounted: readonly string[]) => {
    const container = aContainer("c", { volumeMounts: mountsOf(...mounted) });
    const pod = aPod({ volumes: [...volumes], containers: [container] }, { annotations: { a: "1" } });
    return puller.ensureVolumes(pod, container, PodSandboxConfig.fromPartial({}), signal);
  };
  return { runtime, events, ensure };
}

describe("image volumes", () => {
  it("image volumes are listed only if the container mounts them, each once", () => {
    const volumes = [
      aVolume("i", "one:1"),
      aVolume("j", "two:1"),
      aVolume("k", "three:1"),
      { name: "e", emptyDir: {} },
    ];
    const [pod, container] = podOf({ volumeMounts: mountsOf("j", "e", "i", "j", "gone") }, { volumes });
    assert.deepEqual(
      imageVolumes(pod, container).map(({ name, image }) => `${name} ${image.reference}`),
      ["j two:1", "i one:1"],
    );
    assert.deepEqual(imageVolumes(pod, aContainer("none")), []);
    assert.deepEqual(
      usedVolumes(pod).map(({ name }) => name),
      ["e"],
      "the node itself sets up the others alone",
    );
  });
  it("image volumes are pulled according to their policies, on behalf of the pod", async () => {
    const { runtime, events, ensure } = setUp(aVolume("there", "one:1"), aVolume("new", "two"));
    const one = runtime.addImage("one:1");
    runtime.offerImage("two:latest");
    const images = await ensure("there", "new");
    const annotations = { a: "1" };
    assert.deepEqual(
      images.get("there"),
      ImageSpec.fromPartial({ image: one, userSpecifiedImage: "one:1", annotations }),
    );
    assert.equal(images.get("new")?.userSpecifiedImage, "two");
    assert.deepEqual(events.slice(0, 2), [
      'Pod Pulled: Container image "one:1" already present on machine',
      'Pod Pulling: Pulling image "two"',
    ]);
  });
  it("image volumes keep the container waiting if unavailable, but other images are still pulled", async () => {
    const { events, runtime, ensure } = setUp(aVolume("gone", "one:1", "Never"), aVolume("new", "two:1"));
    runtime.offerImage("two:1");
    await assert.rejects(ensure("gone", "new"), (error: unknown) => {
      assert.ok(error instanceof StartError);
      return error.reason === "ErrImageNeverPull";
    });
    assert.match(events.at(-1) ?? "", /^Pod Pulled: Successfully pulled image "two:1"/);
    assert.equal((await ensure("new")).size, 1, "a container that does not mount it does not wait");
  });
});

describe("an image mount", () => {
  let root: string;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), "graftlet-image-volumes-"));
    await writeFile(join(root, "resolv.conf"), "");
  });
  after(() => rm(root, { recursive: true }));
  const image = ImageSpec.fromPartial({ image: "sha256:i", userSpecifiedImage: "one:1" });

  it("an image mount is read-only and resolved by the runtime; a subPath is relative to the image", async () => {
    const { configure } = preparerIn(root);
    const [pod, container] = podOf(
      {
        env: [{ name: "DIR", value: "bin" }],
        volumeMounts: [
          { name: "i", mountPath: "/whole" },
          { name: "i", mountPath: "/part", subPathExpr: "usr/$(DIR)" },
          { name: "data", mountPath: "/data", subPath: "a" },
        ],
      },
      { volumes: [aVolume("i", "one:1"), { name: "data", emptyDir: {} }] },
    );
    const config = await configure(pod, container, ["10.0.0.2"], observe([], []), { volumes: new Map([["i", image]]) });
    const [whole, part, data] = config.mounts;
    assert.deepEqual([whole?.image, whole?.imageSubPath, whole?.hostPath, whole?.readonly], [image, "", "", true]);
    assert.deepEqual([part?.image, part?.imageSubPath, part?.hostPath], [image, "usr/bin", ""]);
    assert.equal(whole?.propagation, MountPropagation.PROPAGATION_PRIVATE);
    assert.deepEqual([data?.image, data?.imageSubPath, data?.hostPath], [undefined, "", "/parts/c/2/data:a"]);
  });
  it("an image mount must not leave the image", async () => {
    const { configure } = preparerIn(root);
    const volumeMounts = [{ name: "i", mountPath: "/part", subPath: "../up" }];
    const [pod, container] = podOf({ volumeMounts }, { volumes: [aVolume("i", "one:1")] });
    await assert.rejects(
      configure(pod, container, ["10.0.0.2"], observe([], []), { volumes: new Map([["i", image]]) }),
      /unable to provision SubPath `..\/up`: must not contain '..'/,
    );
  });
});
