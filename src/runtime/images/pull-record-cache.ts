import type { Image } from "../../gen/cri.ts";
import type { Clock } from "../../lib/clock.ts";
import type { ClockAndLog } from "../../lib/log.ts";
import { createSemaphore } from "../../lib/semaphore.ts";
import { bareName, canonicalImageName } from "../../pod/image-name.ts";
import type { Images } from "../../seams/runtime.ts";
import { mergeCredentials } from "./pull-credentials.ts";
import type { PullCredentials, ImagePulledRecord, PullRecords } from "./pull-records.ts";

/** A cache of the pull records: each is read once, and writes are serialized. No call is aborted together with the pod that caused it. */
export interface PullRecordCache {
  /** Adopts pulls that an earlier process did not see complete; runs once. @throws when the target cannot be reached. */
  adoptIntents(): Promise<void>;
  /** The record of an image. @throws when it cannot be read. */
  record(imageRef: string): Promise<ImagePulledRecord | undefined>;
  /** True while a pull of this name has begun and has neither failed nor been recorded. */
  isInProgress(image: string): boolean;
  /** @throws when it cannot be recorded. */
  begin(image: string): Promise<void>;
  end(image: string): Promise<void>;
  /** @param credentials undefined for a pull with unknown credentials: every user is verified.
   *  @returns false if it could not be written, which is logged. */
  add(image: string, imageRef: string, credentials: PullCredentials | undefined): Promise<boolean>;
  /** Forgets images that are not in the list and have older records. @param before milliseconds since the epoch. */
  prune(imageRefs: readonly string[], before: number): Promise<void>;
}

const ioTimeoutMs = 30_000;

export function createPullRecordCache({
  runtime,
  records,
  clock,
  log,
}: ClockAndLog & { readonly runtime: Pick<Images, "listImages">; readonly records: PullRecords }): PullRecordCache {
  const read = cacheReads(records, clock);
  /** Pulls in progress, by name; and pulls of an earlier process whose outcome is unknown. */
  const inProgress = new Map<string, number>();
  const orphaned = new Set<string>();
  const serialize = createSemaphore(1);
  let adopting: Promise<void> | undefined;

  const add: PullRecordCache["add"] = (image, imageRef, credentials) =>
    serialize(async () => {
      const before = await read.of(imageRef).catch(() => undefined);
      const added = withCredentials(before, image, credentials);
      if (!added) return true;
      const next: ImagePulledRecord = { imageRef, lastUpdated: clock.now(), credentials: added };
      try {
        await records.writePulled(next, clock.within(ioTimeoutMs));
      } catch (err) {
        log.warn({ err, image }, "cannot record image pull");
        return false;
      }
      read.put(next);
      return true;
    });

  const end: PullRecordCache["end"] = (image) =>
    serialize(async () => {
      const left = (inProgress.get(image) ?? 1) - 1;
      if (left > 0) return void inProgress.set(image, left);
      try {
        await records.deleteIntent(image, clock.within(ioTimeoutMs));
        orphaned.delete(image);
      } catch (err) {
        // Removed with the next pull of that name, or at the next start.
        orphaned.add(image);
        log.warn({ err, image }, "cannot remove the intent record of a finished image pull");
      } finally {
        inProgress.delete(image);
      }
    });

  const adopt = async (): Promise<void> => {
    const left = (await records.intents(clock.within(ioTimeoutMs))).filter((image) => !inProgress.has(image));
    const images = left.length > 0 ? await runtime.listImages(clock.within(ioTimeoutMs)) : [];
    for (const image of left) {
      orphaned.add(image);
      const there = images.find((one) => hasName(one, image));
      if (there && (await add(image, there.id, undefined))) await end(image);
    }
  };

  return {
    record: read.of,
    add,
    end,
    adoptIntents() {
      const running = (adopting ??= adopt());
      running.catch(() => adopting === running && (adopting = undefined));
      return running;
    },
    isInProgress: (image) => inProgress.has(image) || orphaned.has(image),
    begin: (image) =>
      serialize(async () => {
        if (!inProgress.has(image)) await records.writeIntent(image, clock.within(ioTimeoutMs));
        inProgress.set(image, (inProgress.get(image) ?? 0) + 1);
      }),
    prune: (imageRefs, before) =>
      serialize(() => {
        read.keep(imageRefs);
        return records.prune(imageRefs, before, clock.within(ioTimeoutMs));
      }),
  };
}

/** Caches records; failed reads are retried. */
function cacheReads(records: PullRecords, clock: Clock) {
  const read = new Map<string, Promise<ImagePulledRecord | undefined>>();
  return {
    of(imageRef: string): Promise<ImagePulledRecord | undefined> {
      const known = read.get(imageRef) ?? records.pulled(imageRef, clock.within(ioTimeoutMs));
      read.set(imageRef, known);
      known.catch(() => read.get(imageRef) === known && read.delete(imageRef));
      return known;
    },
    put: (record: ImagePulledRecord) => void read.set(record.imageRef, Promise.resolve(record)),
    keep(imageRefs: readonly string[]): void {
      for (const imageRef of read.keys()) if (!imageRefs.includes(imageRef)) read.delete(imageRef);
    },
  };
}

/** Credentials by name, with these added for an image; undefined if the record stays unchanged. */
function withCredentials(
  record: ImagePulledRecord | undefined,
  image: string,
  credentials: PullCredentials | undefined,
): ImagePulledRecord["credentials"] | undefined {
  const all = record?.credentials ?? new Map<string, PullCredentials>();
  const name = bareName(image);
  const merged = credentials && mergeCredentials(all.get(name), credentials);
  if (merged) return new Map([...all, [name, merged]]);
  return record ? undefined : all;
}

function hasName({ repoTags, repoDigests }: Image, image: string): boolean {
  const canonical = (text: string): string | undefined => {
    try {
      return canonicalImageName(text);
    } catch {
      return undefined;
    }
  };
  const name = canonical(image);
  return name !== undefined && [...repoTags, ...repoDigests].some((one) => canonical(one) === name);
}
