import type { Reclaim } from "../eviction/ports.ts";
import { type Image, ImageSpec } from "../gen/cri.ts";
import { aggregateText } from "../lib/aggregate.ts";
import { hasCode, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Tracer } from "../lib/tracer.ts";
import type { EventSink, PodCache, WaitForTarget } from "../pipeline.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { nodeReference } from "../pod/reference.ts";
import type { HostFs } from "../seams/host.ts";
import type { Containers, Images } from "../seams/runtime.ts";
import { type ImageAges, type UnusedImage, createImageAges, imagesInUse } from "./image-ages.ts";
import type { PulledImages } from "./pulled-images.ts";

/** Why an image was removed: it had not been used for too long, or its space was needed. */
export type ImageRemoval = "age" | "space";

export interface ImageRemovalMeasures {
  removed(why: ImageRemoval): void;
}

/** Image garbage collection policy. Ages are milliseconds. */
export interface ImageLimits {
  /** Percentages of the image file system: KubeletConfiguration.imageGCHighThresholdPercent and imageGCLowThresholdPercent. */
  readonly highPercent: number;
  readonly lowPercent: number;
  readonly minAgeMs: number;
  /** Zero for no limit. */
  readonly maxAgeMs: number;
}

export interface ImageCollectionDeps extends ClockAndLog {
  readonly runtime: Pick<Images, "listImages" | "removeImage" | "imageFsInfo"> &
    Pick<Containers, "listContainers" | "containerStatus">;
  readonly fs: Pick<HostFs, "fileSystemInfo">;
  readonly podCache: Pick<PodCache, "list">;
  /** On a shared runtime, the images that this node pulled: only those are removed. */
  readonly pulled: Pick<PulledImages, "namesOf" | "reconcile"> | undefined;
  /** Forgets pull records of images that are not in the list. @param since milliseconds since the epoch: records of later pulls are
   *  kept. */
  readonly prunePulls: ((imageIds: readonly string[], since: number) => Promise<void>) | undefined;
  readonly waitForTarget: WaitForTarget | undefined;
  readonly limits: ImageLimits;
  readonly nodeName: string;
  readonly events: EventSink;
  readonly measures: ImageRemovalMeasures;
  readonly tracer: Tracer;
}

/** The kubelet's image detection and garbage collection period. */
const periodMs = 300_000;

interface Collector extends ImageCollectionDeps {
  readonly ages: ImageAges;
  /** IDs of the images on the node, and when they were listed, milliseconds since the epoch. */
  present: { readonly ids: Set<string>; readonly since: number };
  /** Clock.monotonic() at the agent's start. */
  readonly beganAt: number;
}

/** Removes unused images when the image file system fills up, and those unused for longer than the maximum age.
 *  @see https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-garbage-collection */
export function createImageCollection(deps: ImageCollectionDeps): Runnable & Pick<Reclaim, "deleteUnusedImages"> {
  const { limits, clock, log } = deps;
  const collector: Collector = {
    ...deps,
    ages: createImageAges(),
    present: { ids: new Set(), since: 0 },
    beganAt: clock.monotonic(),
  };
  const serialize = createSemaphore(1);
  const isEnabled = limits.highPercent < 100 || limits.maxAgeMs > 0;
  let failed = false;
  const round = async (signal: AbortSignal) => {
    try {
      await serialize(async () => {
        if (isEnabled) await tracedCollect(collector, signal);
        else await detect(collector, signal);
        await pruneRecords(collector);
      });
      failed = false;
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error, again: failed }, "Image garbage collection failed");
      // The first failure may only mean that the runtime is not ready yet.
      if (failed && isEnabled) reportEvent(deps, "ImageGCFailed", runtimeErrorText(error));
      failed = true;
    }
  };
  return {
    ...runPeriodically({ ...deps, name: "image-collection", intervalMs: periodMs }, round),
    deleteUnusedImages: (signal) =>
      serialize(async () => {
        const now = clock.monotonic();
        const unused = await detect(collector, signal);
        const freed = await freeSpace(collector, unused, { bytes: Number.POSITIVE_INFINITY, now }, signal);
        await pruneRecords(collector);
        return freed;
      }),
  };
}

function reportEvent({ events, nodeName }: ImageCollectionDeps, reason: string, message: string): void {
  events.event(nodeReference(nodeName), "Warning", reason, message);
}

/** Forgets the pull records of images that are gone, no matter who removed them. */
async function pruneRecords({ prunePulls, present: { ids, since }, log }: Collector): Promise<void> {
  await prunePulls?.([...ids], since).catch((err: unknown) => {
    log.warn({ err }, "cannot remove pull records of deleted images");
  });
}

/** @returns unused images, in removal order. @throws if the runtime cannot be reached. */
async function detect(collector: Collector, signal: AbortSignal): Promise<readonly UnusedImage[]> {
  const { runtime, podCache, pulled, ages, clock } = collector;
  const began = clock.monotonic();
  const since = clock.now();
  const [images, containers] = await Promise.all([
    runtime.listImages(signal),
    runtime.listContainers(undefined, signal),
  ]);
  collector.present = { ids: new Set(images.map(({ id }) => id)), since };
  const cached = new Map(
    podCache.list().flatMap((pod) => pod.containers.map((status) => [status.id, status] as const)),
  );
  const containerStatusOf = async (id: string) =>
    cached.get(id) ?? (await ignoreNotFound(runtime.containerStatus(id, signal)))?.status ?? [];
  const statuses = (await Promise.all(containers.map(({ id }) => containerStatusOf(id)))).flat();
  await pulled?.reconcile(images, began, signal);
  const used = imagesInUse(images, containers, statuses);
  const unused = ages.record(images, used, { began, now: clock.monotonic() });
  return unused.filter(({ image }) => hasId(collector, image) && (!pulled || pulled.namesOf(image) !== undefined));
}

function hasId(deps: ImageCollectionDeps, { id }: Image): boolean {
  if (id !== "") return true;
  reportEvent(deps, "InvalidImageID", `ImageID is not valid, skipping, image: ${id}`);
  return false;
}

function tracedCollect(collector: Collector, signal: AbortSignal): Promise<void> {
  return collector.tracer.span("Images/GarbageCollect", { parent: "none" }, () => collect(collector, signal));
}

async function collect(collector: Collector, signal: AbortSignal): Promise<void> {
  const { limits, clock, log } = collector;
  const now = clock.monotonic();
  const images = await removeOldImages(collector, await detect(collector, signal), now, signal);
  const space = await imageSpace(collector, signal);
  if (space.capacityBytes === 0) {
    const message = "invalid capacity 0 on image filesystem";
    reportEvent(collector, "InvalidDiskCapacity", message);
    throw new Error(message);
  }
  const { usedPercent, bytes } = amountToFree(space, limits);
  if (bytes === undefined) return;
  log.info(
    { usedPercent, bytes, ...limits },
    "Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
  );
  const freed = await freeSpace(collector, images, { bytes, now }, signal);
  if (freed >= bytes) return;
  const message = freeSpaceFailed(usedPercent, space.capacityBytes, freed);
  reportEvent(collector, "FreeDiskSpaceFailed", message);
  throw new Error(message);
}

/** Removes images unused for longer than the maximum age, once the agent itself has run for that long. @returns the remaining images. */
async function removeOldImages(
  collector: Collector,
  images: readonly UnusedImage[],
  now: number,
  signal: AbortSignal,
): Promise<readonly UnusedImage[]> {
  const { maxAgeMs } = collector.limits;
  if (maxAgeMs === 0 || now - collector.beganAt <= maxAgeMs) return images;
  const errors: unknown[] = [];
  const left: UnusedImage[] = [];
  for (const one of images) {
    if (now - one.lastUsed <= maxAgeMs) left.push(one);
    else
      try {
        await removeImage(collector, one, "age", signal);
      } catch (error) {
        throwIfAborted(signal);
        errors.push(error);
      }
  }
  if (errors.length === 0) return left;
  const limit = goDuration(maxAgeMs);
  throw joinErrors(`wanted to free images older than ${limit}, encountered errors in image deletion`, errors);
}

interface FreeRequest {
  /** Infinity to remove all unused images. */
  readonly bytes: number;
  readonly now: number;
}

/** Removes images until `bytes` are free. @returns bytes freed; like the kubelet, counts shared layers for each image. */
async function freeSpace(
  collector: Collector,
  images: readonly UnusedImage[],
  { bytes, now }: FreeRequest,
  signal: AbortSignal,
): Promise<number> {
  const errors: unknown[] = [];
  let freed = 0;
  for (const one of images) {
    if (one.lastUsed >= now || now - one.firstDetected < collector.limits.minAgeMs) continue;
    try {
      if (await removeImage(collector, one, "space", signal)) freed += one.size;
    } catch (error) {
      throwIfAborted(signal);
      errors.push(error);
      continue;
    }
    if (freed >= bytes) break;
  }
  if (errors.length === 0) return freed;
  const amount = Number.isFinite(bytes) ? bytes : 2n ** 63n - 1n;
  throw joinErrors(
    `wanted to free ${amount} bytes, but freed ${freed} bytes space with errors in image deletion`,
    errors,
  );
}

/** Removes an image; on a shared runtime, by the names that this node pulled.
 *  @returns false if another client's container uses it. */
async function removeImage(
  { runtime, pulled, present, ages, clock, measures, log }: Collector,
  { image, size }: UnusedImage,
  why: ImageRemoval,
  signal: AbortSignal,
): Promise<boolean> {
  const { id } = image;
  const names = pulled ? pulled.namesOf(image) : [id];
  log.info({ imageID: id, names, size, why }, "Removing image to free bytes");
  try {
    for (const name of names ?? []) await runtime.removeImage(ImageSpec.fromPartial({ image: name }), signal);
  } catch (error) {
    if (!pulled || !hasCode(error, "conflict")) throw error;
    ages.markUsed(id, clock.monotonic());
    return false;
  }
  ages.forget(id);
  present.ids.delete(id);
  measures.removed(why);
  return true;
}

/** Space of the first image file system, as in the kubelet; capacity 0 if the target does not know it. */
async function imageSpace(
  { runtime, fs }: Collector,
  signal: AbortSignal,
): Promise<{ readonly capacityBytes: number; readonly availableBytes: number }> {
  const [first] = (await runtime.imageFsInfo(signal)).imageFilesystems;
  if (!first) throw new Error("imageFs information is unavailable");
  const unknown = { capacityBytes: 0, availableBytes: 0 };
  if (!first.fsId) return unknown;
  try {
    return (await ignoreNotFound(fs.fileSystemInfo(first.fsId.mountpoint, signal))) ?? unknown;
  } catch (error) {
    throwIfAborted(signal);
    throw new Error(`get filesystem info: ${messageOf(error)}`, { cause: error });
  }
}

/** Joins errors as the kubelet does, each text once. */
function joinErrors(what: string, errors: readonly unknown[]): Error {
  return new Error(`${what}: ${aggregateText(errors.map(runtimeErrorText))}`, { cause: errors[0] });
}

/** Usage of the image file system, and the bytes to free to get down to the low threshold; undefined below the high threshold. Whole
 *  percents and bytes, rounded like the kubelet. Pure. @param space with a capacity above 0. */
function amountToFree(
  { capacityBytes, availableBytes }: { readonly capacityBytes: number; readonly availableBytes: number },
  { highPercent, lowPercent }: { readonly highPercent: number; readonly lowPercent: number },
): { readonly usedPercent: number; readonly bytes: number | undefined } {
  const capacity = BigInt(capacityBytes);
  const available = BigInt(Math.min(availableBytes, capacityBytes));
  const usedPercent = 100 - Number((available * 100n) / capacity);
  const bytes = (capacity * BigInt(100 - lowPercent)) / 100n - available;
  return { usedPercent, bytes: usedPercent >= highPercent ? Number(bytes) : undefined };
}

/** The kubelet's message when removing images did not free enough space. */
function freeSpaceFailed(usedPercent: number, capacityBytes: number, freedBytes: number): string {
  return (
    `Insufficient free disk space on the node's image filesystem (${usedPercent}% of ${sizeText(capacityBytes)} used). ` +
    `Failed to free sufficient space by deleting unused images (freed ${freedBytes} bytes). ` +
    "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
  );
}

const units = ["KiB", "MiB", "GiB", "TiB"] as const;

function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power - 1] ?? "TiB"}`;
}
