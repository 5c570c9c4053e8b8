/** Suffix of a log that was rotated, by the target's local time: `0.log.20240501-123456`. */
const timestamp = /^\.\d{8}-\d{6}$/;
/** Suffix by which Docker counts rotated logs, the newest first: `…-json.log.1`. */
const count = /^\.[1-9]\d{0,5}$/;
const compressed = ".gz";
const temporary = ".tmp";

/** What has to happen to the rotated files of a log before it is rotated again. Names of files. */
export interface RotationPlan {
  /** Leftovers of rotations that were cut short, then the oldest files beyond the limit. */
  readonly remove: readonly string[];
  /** To be compressed, oldest first. */
  readonly compress: readonly string[];
}

/** Plan for the rotated files of one log. Temporary files and files that were compressed already are of no use; besides the log
 *  and the one that is about to be rotated there may be `maxFiles` − 2. Pure.
 *  @param names of the log's rotated files, all of them `LOG.…`.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export function planRotation(names: readonly string[], maxFiles: number): RotationPlan {
  const there = new Set(names);
  const isUsed = (name: string) =>
    !name.endsWith(temporary) && (name.endsWith(compressed) || !there.has(name + compressed));
  const used = names.filter(isUsed).toSorted();
  const excess = Math.max(0, used.length - Math.max(0, maxFiles - 2));
  return {
    remove: [...names.filter((name) => !isUsed(name)), ...used.slice(0, excess)],
    compress: used.slice(excess).filter((name) => !name.endsWith(compressed)),
  };
}

/** A rotated file of a log. */
export interface RotatedLog {
  /** Name of the file. */
  readonly name: string;
  /** Time in its name, which sorts as text and which compression leaves; absent where numbers tell the files apart. */
  readonly rotatedAt?: string;
  readonly isCompressed?: true;
}

/** A log's rotated files, newest first: those of a kubelet or, of Docker's own logs, Docker's. Of one that is just being compressed
 *  that which was written by the runtime. Pure.
 *  @param log the log's own name. */
export function rotatedLogs(names: readonly string[], log: string): readonly RotatedLog[] {
  const suffixes = new Set(names.filter((name) => name.startsWith(log)).map((name) => name.slice(log.length)));
  const byTime = [...new Set([...suffixes].map((suffix) => withoutEnd(suffix, compressed)))]
    .filter((suffix) => timestamp.test(suffix))
    .toSorted()
    .reverse()
    .map((rotatedAt): RotatedLog => {
      if (suffixes.has(rotatedAt)) return { name: log + rotatedAt, rotatedAt };
      return { name: log + rotatedAt + compressed, rotatedAt, isCompressed: true };
    });
  const byCount = [...suffixes].filter((suffix) => count.test(suffix));
  byCount.sort((a, b) => Number(a.slice(1)) - Number(b.slice(1)));
  return [...byTime, ...byCount.map((suffix) => ({ name: log + suffix }))];
}

function withoutEnd(text: string, end: string): string {
  return text.endsWith(end) ? text.slice(0, -end.length) : text;
}
