import type { Image } from "../../gen/cri.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import { createSemaphore } from "../../lib/semaphore.ts";
import { bareName, canonicalName } from "../../pod/image-name.ts";
import type { Images } from "../../seams/runtime.ts";
import { mergeCredentials } from "./pull-credentials.ts";
import type { PullCredentials, PulledRecord, PullRecords } from "./pull-records.ts";

export interface KnownPullsDeps {
  readonly runtime: Pick<Images, "listImages">;
  readonly records: PullRecords;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A cache of the pull records: each is read once, and writes are serialized. No call is aborted together with the pod that caused it. */
export interface KnownPulls {
  /** Adopts pulls that an earlier process did not see complete; runs once. @throws when the target cannot be reached. */
  takeOver(): Promise<void>;
  /** The record of an image. @throws when it cannot be read. */
  record(imageRef: string): Promise<PulledRecord | undefined>;
  /** True while a pull of this name has begun and has neither failed nor been recorded. */
  isUnderWay(image: string): boolean;
  /** @throws when it cannot be recorded. */
  begin(image: string): Promise<void>;
  end(image: string): Promise<void>;
  /** @param credentials undefined for a pull with unknown credentials: every user is verified.
   *  @returns false if it could not be written, which is logged. */
  add(image: string, imageRef: string, credentials: PullCredentials | undefined): Promise<boolean>;
  /** Forgets images that are not in the list and have older records. @param before milliseconds since the epoch. */
  prune(imageRefs: readonly string[], before: number): Promise<void>;
}

const answerMs = 30_000;

export function createKnownPulls({ runtime, records, clock, log }: KnownPullsDeps): KnownPulls {
  const read = readOnce(records, clock);
  /** Pulls in progress, by name; and pulls of an earlier process whose outcome is unknown. */
  const underWay = new Map<string, number>();
  const unended = new Set<string>();
  const inTurn = createSemaphore(1);
  let takingOver: Promise<void> | undefined;

  const add: KnownPulls["add"] = (image, imageRef, credentials) =>
    inTurn(async () => {
      const before = await read.of(imageRef).catch(() => undefined);
      const added = addedTo(before, image, credentials);
      if (!added) return true;
      const next: PulledRecord = { imageRef, lastUpdated: clock.now(), credentials: added };
      try {
        await records.writePulled(next, clock.within(answerMs));
      } catch (err) {
        log.warn({ err, image }, "cannot record image pull");
        return false;
      }
      read.put(next);
      return true;
    });

  const end: KnownPulls["end"] = (image) =>
    inTurn(async () => {
      const left = (underWay.get(image) ?? 1) - 1;
      if (left > 0) return void underWay.set(image, left);
      try {
        await records.deleteIntent(image, clock.within(answerMs));
        unended.delete(image);
      } catch (err) {
        // Removed with the next pull of that name, or at the next start.
        unended.add(image);
        log.warn({ err, image }, "cannot remove the intent record of a finished image pull");
      } finally {
        underWay.delete(image);
      }
    });

  const adopt = async (): Promise<void> => {
    const left = (await records.intents(clock.within(answerMs))).filter((image) => !underWay.has(image));
    const images = left.length > 0 ? await runtime.listImages(clock.within(answerMs)) : [];
    for (const image of left) {
      unended.add(image);
      const there = images.find((one) => hasName(one, image));
      if (there && (await add(image, there.id, undefined))) await end(image);
    }
  };

  return {
    record: read.of,
    add,
    end,
    takeOver() {
      const running = (takingOver ??= adopt());
      running.catch(() => takingOver === running && (takingOver = undefined));
      return running;
    },
    isUnderWay: (image) => underWay.has(image) || unended.has(image),
    begin: (image) =>
      inTurn(async () => {
        if (!underWay.has(image)) await records.writeIntent(image, clock.within(answerMs));
        underWay.set(image, (underWay.get(image) ?? 0) + 1);
      }),
    prune: (imageRefs, before) =>
      inTurn(() => {
        read.keep(imageRefs);
        return records.prune(imageRefs, before, clock.within(answerMs));
      }),
  };
}

/** Caches records; failed reads are retried. */
function readOnce(records: PullRecords, clock: Clock) {
  const read = new Map<string, Promise<PulledRecord | undefined>>();
  return {
    of(imageRef: string): Promise<PulledRecord | undefined> {
      const known = read.get(imageRef) ?? records.pulled(imageRef, clock.within(answerMs));
      read.set(imageRef, known);
      known.catch(() => read.get(imageRef) === known && read.delete(imageRef));
      return known;
    },
    put: (record: PulledRecord) => void read.set(record.imageRef, Promise.resolve(record)),
    keep(imageRefs: readonly string[]): void {
      for (const imageRef of read.keys()) if (!imageRefs.includes(imageRef)) read.delete(imageRef);
    },
  };
}

/** Credentials by name, with these added for an image; undefined if the record stays unchanged. */
function addedTo(
  record: PulledRecord | undefined,
  image: string,
  credentials: PullCredentials | undefined,
): PulledRecord["credentials"] | undefined {
  const all = record?.credentials ?? new Map<string, PullCredentials>();
  const name = bareName(image);
  const merged = credentials && mergeCredentials(all.get(name), credentials);
  if (merged) return new Map([...all, [name, merged]]);
  return record ? undefined : all;
}

function hasName({ repoTags, repoDigests }: Image, image: string): boolean {
  const nameOf = (text: string): string | undefined => {
    try {
      return canonicalName(text);
    } catch {
      return undefined;
    }
  };
  const name = nameOf(image);
  return name !== undefined && [...repoTags, ...repoDigests].some((one) => nameOf(one) === name);
}
