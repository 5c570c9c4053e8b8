/** Suffix of a rotated log, in the target's local time: `0.log.20240501-123456`. */
const timestamp = /^\.\d{8}-\d{6}$/;
/** Suffix of Docker's rotated logs, newest first: `…-json.log.1`. */
const count = /^\.[1-9]\d{0,5}$/;
const compressed = ".gz";
const temporary = ".tmp";

/** Changes to the rotated files of a log before it is rotated again. File names. */
export type RotationPlan = ReturnType<typeof planRotation>;

/** Plans changes to the rotated files of one log. Temporary files and files that are already compressed are removed; in
 *  addition to the log and the file about to be rotated, `maxFiles` − 2 may remain. Pure. @param names of the log's rotated
 *  files, all of the form `LOG.…`.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export function planRotation(names: readonly string[], maxFiles: number) {
  const there = new Set(names);
  const isUsed = (name: string) =>
    !name.endsWith(temporary) && (name.endsWith(compressed) || !there.has(name + compressed));
  const used = names.filter(isUsed).toSorted();
  const excess = Math.max(0, used.length - Math.max(0, maxFiles - 2));
  return {
    /** Leftovers of interrupted rotations, then the oldest files over the limit. */
    remove: [...names.filter((name) => !isUsed(name)), ...used.slice(0, excess)],
    /** Files to compress, oldest first. */
    compress: used.slice(excess).filter((name) => !name.endsWith(compressed)),
  };
}

/** A rotated file of a log. */
export interface RotatedFile {
  readonly name: string;
  /** Time in its name, which sorts as text and is kept by compression; absent for numbered files. */
  readonly rotatedAt?: string;
  readonly isCompressed?: true;
}

/** A log's rotated files, newest first, by the kubelet's or Docker's naming. For a file that is being compressed, the
 *  uncompressed one. Pure. @param log name of the log. */
export function rotatedFiles(names: readonly string[], log: string): readonly RotatedFile[] {
  const suffixes = new Set(names.filter((name) => name.startsWith(log)).map((name) => name.slice(log.length)));
  const byTime = [...new Set([...suffixes].map((suffix) => withoutEnd(suffix, compressed)))]
    .filter((suffix) => timestamp.test(suffix))
    .toSorted()
    .reverse()
    .map((rotatedAt): RotatedFile => {
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
