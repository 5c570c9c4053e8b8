/** A range of user and group IDs of the target. */
export interface IdRange {
  /** The ID on the target that is 0 in the pod. */
  readonly first: number;
  readonly length: number;
}

/** ID ranges of pods, all of the same length, within the IDs that the node may use. */
export type IdRanges = ReturnType<typeof createIdRanges>;

/** Creates an empty set of ranges.
 *  @param available range whose start and length are multiples of `idsPerPod`. @param random returns an integer from 0 to below its
 *  argument. */
export function createIdRanges(available: IdRange, idsPerPod: number, random: (below: number) => number) {
  const count = Math.floor(available.length / idsPerPod);
  const indexes = new Map<string, number>();
  const used = new Set<number>();
  const rangeAt = (index: number): IdRange => ({ first: available.first + index * idsPerPod, length: idsPerPod });
  const add = (uid: string, index: number) => {
    indexes.set(uid, index);
    used.add(index);
  };
  return {
    get(uid: string) {
      const index = indexes.get(uid);
      return index === undefined ? undefined : rangeAt(index);
    },
    /** Allocates a free range to a pod that has none. The range is chosen at random, so that released ranges are not reused at once.
     *  @throws Error in the kubelet's words if no range is free. */
    allocate(uid: string) {
      if (used.size >= count) throw new Error("could not find an empty slot to allocate a user namespace");
      let index = random(count);
      while (used.has(index)) index = (index + 1) % count;
      add(uid, index);
      return rangeAt(index);
    },
    /** Records the range that a pod already has. @throws Error in the kubelet's words for a range that is not available. */
    record(uid: string, { first, length }: IdRange) {
      if (length !== idsPerPod) throw new Error(`wrong user namespace length ${length}`);
      if (first % idsPerPod !== 0) throw new Error(`wrong user namespace offset specified ${first}`);
      const index = (first - available.first) / idsPerPod;
      const own = indexes.get(uid);
      if (own !== undefined && own !== index)
        throw new Error(`different user namespace range already used by pod "${uid}"`);
      if (index < 0 || index >= count) throw new Error(`id ${first} is out of range`);
      if (own === undefined && used.has(index)) throw new Error(`range picked for pod "${uid}" already taken`);
      add(uid, index);
    },
    /** Frees the range of a pod. Idempotent. */
    release(uid: string) {
      const index = indexes.get(uid);
      if (index === undefined) return;
      indexes.delete(uid);
      used.delete(index);
    },
    /** True if no range is free. */
    isFull: () => used.size >= count,
  };
}
