import assert from "node:assert/strict";
import { test } from "node:test";
import { type ImageCollectionDeps, type ImageLimits, createImageCollection } from "../../../src/gc/image-collection.ts";
import { Container, ContainerStatus, Image, ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { never } from "../../fakes/signals.ts";
import { fakeTracer } from "../../fakes/tracer.ts";

const minute = 60_000;
const standard: ImageLimits = { highPercent: 85, lowPercent: 80, minAgeMs: 2 * minute, maxAgeMs: 0 };
/** Bytes of the file system; each image takes ten. */
const capacity = 100;

/** @param names image names; a `!` marks pinned images. */
function rig(names: readonly string[], limits: Partial<ImageLimits> = {}, more: Partial<ImageCollectionDeps> = {}) {
  const clock = fakeClock();
  const events = eventLines();
  const removed: string[] = [];
  const reasons: string[] = [];
  const store = new Map(
    names.map((name) => [
      name,
      Image.fromPartial({ id: name, repoTags: [`t.test/${name}:1`], size: 10n, pinned: name.endsWith("!") }),
    ]),
  );
  /** Images used by containers, and images mounted by them. */
  const used: string[] = [];
  const mounted: string[] = [];
  const space = { foreign: 0, capacityBytes: capacity };
  const runtime: ImageCollectionDeps["runtime"] = {
    listImages: async () => [...store.values()],
    async removeImage({ image }) {
      store.delete(image.replace(/^t\.test\/(.*):1$/, "$1"));
      removed.push(image);
    },
    imageFsInfo: async () =>
      ImageFsInfoResponse.fromPartial({ imageFilesystems: [{ fsId: { mountpoint: "/images" } }] }),
    listContainers: async () => [
      ...used.map((imageId) => Container.fromPartial({ id: `of-${imageId}`, imageId })),
      ...(mounted.length > 0 ? [Container.fromPartial({ id: "mounting", imageId: "none" })] : []),
    ],
    containerStatus: async () => ({
      status: ContainerStatus.fromPartial({ mounts: mounted.map((image) => ({ image: { image } })) }),
      info: {},
    }),
  };
  const tracer = fakeTracer();
  const deps: ImageCollectionDeps = {
    runtime,
    fs: {
      fileSystemInfo: async () => ({
        capacityBytes: space.capacityBytes,
        availableBytes: space.capacityBytes - space.foreign - 10 * store.size,
        usedBytes: space.foreign + 10 * store.size,
        inodes: 1,
        inodesFree: 1,
      }),
    },
    podCache: { list: () => [] },
    pulled: undefined,
    prunePulls: undefined,
    waitForTarget: undefined,
    limits: { ...standard, ...limits },
    nodeName: "node",
    events,
    measures: { removed: (why) => void reasons.push(why) },
    clock,
    tracer,
    log: silentLog(),
    ...more,
  };
  const images = createImageCollection(deps);
  /** Runs the service for the given milliseconds. */
  const during = async (ms: number) => {
    const stop = new AbortController();
    const work = images.run(stop.signal);
    await clock.advance(ms);
    return async (further = 0) => {
      await clock.advance(further);
      stop.abort();
      await work;
    };
  };
  return { clock, events, removed, reasons, store, used, mounted, space, runtime, images, tracer, during };
}

test("above the high threshold, removes images down to the low one, by last use and then by first detection", async () => {
  const { clock, store, used, removed, reasons, space, events, tracer, during } = rig(["a", "b", "c"]);
  used.push("a", "b");
  const end = await during(0);
  used.splice(0, 1);
  store.set("d", Image.fromPartial({ id: "d", size: 10n }));
  await clock.advance(5 * minute);
  used.splice(0);
  space.foreign = 44;
  await clock.advance(5 * minute);
  assert.deepEqual(removed, [], "84 percent");
  space.foreign = 55;
  await clock.advance(5 * minute);
  assert.deepEqual(removed, ["c", "d"]);
  space.foreign = 75;
  await end(5 * minute);
  assert.deepEqual(removed, ["c", "d", "a", "b"]);
  assert.deepEqual([new Set(reasons), events.lines], [new Set(["space"]), []]);
  assert.deepEqual(new Set(tracer.spans.map(({ name }) => name)), new Set(["Images/GarbageCollect"]));
});

test("keeps used, mounted, pinned and young images; reports space that it cannot free, as a failure from the second time on", async () => {
  const { store, used, mounted, removed, space, events, during } = rig(["used", "mounted", "pinned!", "old", "older"]);
  used.push("used");
  mounted.push("mounted");
  space.foreign = 45;
  const end = await during(0);
  assert.deepEqual(removed, [], "images that were first seen now may be about to be used");
  const failed = (freed: number) =>
    "Warning FreeDiskSpaceFailed Insufficient free disk space on the node's image filesystem (95% of 100 B used). " +
    `Failed to free sufficient space by deleting unused images (freed ${freed} bytes). ` +
    "Investigate disk usage, as it could be used by active images, logs, volumes, or other data.";
  assert.deepEqual(events.lines, [failed(0)]);
  space.foreign = 35;
  store.set("young", Image.fromPartial({ id: "young", size: 10n }));
  await end(5 * minute);
  assert.deepEqual(removed, ["old", "older"]);
  assert.deepEqual([...store.keys()], ["used", "mounted", "pinned!", "young"]);
  assert.deepEqual(events.lines, [failed(0)], "down to the low threshold");
});

test("emits an event from the second consecutive failure on", async () => {
  const { space, events, during } = rig([]);
  space.foreign = 90;
  const end = await during(0);
  await end(10 * minute);
  const reasons = events.lines.map((line) => line.split(" ")[1]);
  const free = "FreeDiskSpaceFailed";
  assert.deepEqual(reasons, [free, free, "ImageGCFailed", free, "ImageGCFailed"]);
});

test("an image that cannot be removed does not block the others, and the failure names the cause", async () => {
  const { runtime, removed, space, events, during } = rig(["a", "b", "c"], { minAgeMs: 0 });
  space.foreign = 65;
  const remove = runtime.removeImage;
  runtime.removeImage = async (image, signal) =>
    image.image === "a" ? Promise.reject(new CodedError("unknown", "read-only file system")) : remove(image, signal);
  const end = await during(0);
  assert.deepEqual(removed, ["b", "c"]);
  assert.deepEqual(events.lines, []);
  space.foreign = 85;
  await end(5 * minute);
  assert.deepEqual(events.lines, [
    "Warning ImageGCFailed wanted to free 15 bytes, but freed 0 bytes space with errors in image deletion: " +
      "rpc error: code = Unknown desc = read-only file system",
  ]);
});

test("once the agent has run for the maximum age, removes images unused for that long, regardless of free space", async () => {
  const { used, removed, reasons, during } = rig(["a", "b", "c"], { maxAgeMs: 6 * minute, highPercent: 100 });
  used.push("b");
  const end = await during(5 * minute);
  assert.deepEqual(removed, []);
  used.splice(0);
  await end(5 * minute);
  assert.deepEqual(removed, ["a", "c"], "b was used five minutes ago");
  assert.deepEqual(reasons, ["age", "age"]);
});

test("with a threshold of 100 percent, removes nothing and emits no event, but still detects images", async () => {
  const { space, removed, events, images, during } = rig(["a", "pinned!"], { highPercent: 100 });
  space.foreign = 80;
  const end = await during(0);
  await end(5 * minute);
  assert.deepEqual([removed, events.lines], [[], []]);
  assert.equal(await images.deleteUnusedImages(never), 10);
  assert.deepEqual(removed, ["a"]);
  assert.equal(await images.deleteUnusedImages(never), 0);
});

test("deleteUnusedImages removes all unused images except those that it has only just detected", async () => {
  const { clock, used, removed, reasons, images } = rig(["a", "b", "c"]);
  used.push("b");
  assert.equal(await images.deleteUnusedImages(never), 0);
  await clock.advance(2 * minute);
  assert.equal(await images.deleteUnusedImages(never), 20);
  assert.deepEqual(
    [removed, reasons],
    [
      ["a", "c"],
      ["space", "space"],
    ],
  );
});

test("reports a file system of unknown size and an image without ID as the kubelet does", async () => {
  const { space, store, events, during } = rig(["a"]);
  store.set("", Image.fromPartial({ id: "" }));
  space.capacityBytes = 0;
  const end = await during(0);
  await end(5 * minute);
  const both = [
    "Warning InvalidImageID ImageID is not valid, skipping, image: ",
    "Warning InvalidDiskCapacity invalid capacity 0 on image filesystem",
  ];
  const failure = "Warning ImageGCFailed invalid capacity 0 on image filesystem";
  assert.deepEqual(events.lines, [...both, ...both, failure]);
});

test("on a shared runtime, removes by name only unused images of which this node owns every name", async () => {
  const own = new Set(["mine", "theirs-now", "mine-too"]);
  const { runtime, removed, space, events, during } = rig(
    ["foreign", "theirs-now", "mine", "mine-too"],
    { minAgeMs: 0 },
    {
      pulled: { namesOf: ({ id, repoTags }) => (own.has(id) ? repoTags : undefined), reconcile: async () => undefined },
    },
  );
  const remove = runtime.removeImage;
  runtime.removeImage = async (image, signal) =>
    image.image.includes("theirs-now") ? Promise.reject(new CodedError("conflict", "in use")) : remove(image, signal);
  space.foreign = 60;
  const end = await during(0);
  await end();
  assert.deepEqual(removed, ["t.test/mine:1", "t.test/mine-too:1"]);
  assert.deepEqual(events.lines, []);
});
