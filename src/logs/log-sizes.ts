import { hasCode } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";

/** Type bits of a mode, and their value for a regular file. */
const typeBits = 0o170000;
const regular = 0o100000;

/** Prints `MODE SIZE NAME` of each file that there is; the names come on standard input, each with a NUL at its end. */
const describing = `cd "$1" && exec xargs -0 stat -c '%f %s %n'`;
/** Bytes of one such line at most. */
const lineBytes = 1024;

export type LogSize = { readonly is: "file"; readonly bytes: number } | { readonly is: "other" | "missing" };

/** Sizes of log files, in one command for all of them and one more for those that are missing.
 *  @param root directory of the pods' logs. @param names below it.
 *  @returns for each name what there is; one that cannot be told is left out.
 *  @throws CodedError unavailable and the like when the target cannot be asked. */
export async function logSizes(
  host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "lstat"> },
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, LogSize>> {
  const { stdout } = await host.run(["sh", "-c", describing, "sh", root], {
    stdin: names.map((name) => `${name}\0`).join(""),
    maxOutputBytes: lineBytes * (names.length + 1),
    signal,
  });
  const sizes = new Map(stdout.split("\n").flatMap(sizeIn));
  for (const name of names) {
    if (!sizes.has(name) && (await isMissing(host, `${root}/${name}`, signal))) sizes.set(name, { is: "missing" });
  }
  return sizes;
}

function sizeIn(line: string): readonly (readonly [string, LogSize])[] {
  const [, mode, size, name] = /^([0-9a-f]+) (\d+) (.+)$/.exec(line) ?? [];
  if (mode === undefined || size === undefined || name === undefined) return [];
  const isFile = (Number.parseInt(mode, 16) & typeBits) === regular;
  return [[name, isFile ? { is: "file", bytes: Number(size) } : { is: "other" }]];
}

async function isMissing(
  { fs }: { readonly fs: Pick<Host["fs"], "lstat"> },
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await fs.lstat(path, signal);
    return false;
  } catch (error) {
    if (hasCode(error, "not_found")) return true;
    if (hasCode(error, "unavailable", "cancelled", "deadline_exceeded")) throw error;
    return false;
  }
}
