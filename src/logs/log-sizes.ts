import { hasCode } from "../lib/errors.ts";
import type { FileInfo, Host } from "../seams/host.ts";
import { script } from "../seams/command.ts";

/** Type bits of a mode, and their value for a regular file. */
const typeBits = 0o170000;
const regular = 0o100000;

/** Prints `MODE SIZE NAME` of each existing file; the NUL-terminated names are read from standard input. */
const describing = `cd "$1" && exec xargs -0 stat -c '%f %s %n' --`;
/** Maximum length of one such line, bytes. */
const lineBytes = 1024;

export type LogSize = { readonly kind: "file"; readonly bytes: number } | { readonly kind: "other" | "missing" };

/** Sizes of log files, by lstat where that is cheaper; otherwise with one command for all of them, and lstat for each one
 *  missing in its output. @param root directory of the pods' logs. @param names paths below `root`. @returns the result for
 *  each name; unreadable files are omitted. @throws CodedError, such as unavailable, if the target cannot be queried. */
export async function logSizes(
  host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "lstat" | "lstatAll"> },
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, LogSize>> {
  const pathOf = (name: string) => `${root}/${name}`;
  if (host.fs.lstatAll) {
    const found = await host.fs.lstatAll(names.map(pathOf), signal);
    const known = names.filter((name) => found.has(pathOf(name)));
    return new Map(known.map((name) => [name, sizeOf(found.get(pathOf(name)))]));
  }
  const sizes = new Map(await sizesByCommand(host, root, names, signal));
  // Sequentially: a hanging file system blocks one of the target's threads, not all of them.
  for (const name of names) {
    if (sizes.has(name)) continue;
    const size = await sizeByLstat(host, pathOf(name), signal);
    if (size) sizes.set(name, size);
  }
  return sizes;
}

function sizeOf(info: FileInfo | undefined): LogSize {
  if (!info) return { kind: "missing" };
  return info.kind === "file" ? { kind: "file", bytes: info.size } : { kind: "other" };
}

async function sizesByCommand(
  host: Pick<Host, "run">,
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly (readonly [string, LogSize])[]> {
  const { stdout } = await host.run(script(describing, root), {
    stdin: names.map((name) => `${name}\0`).join(""),
    maxOutputBytes: lineBytes * (names.length + 1),
    signal,
  });
  return stdout.split("\n").flatMap(sizeIn);
}

function sizeIn(line: string): readonly (readonly [string, LogSize])[] {
  const [, mode, size, name] = /^([0-9a-f]+) (\d+) (.+)$/.exec(line) ?? [];
  if (mode === undefined || size === undefined || name === undefined) return [];
  const isFile = (Number.parseInt(mode, 16) & typeBits) === regular;
  return [[name, isFile ? { kind: "file", bytes: Number(size) } : { kind: "other" }]];
}

async function sizeByLstat(
  { fs }: { readonly fs: Pick<Host["fs"], "lstat"> },
  path: string,
  signal: AbortSignal,
): Promise<LogSize | undefined> {
  try {
    return sizeOf(await fs.lstat(path, signal));
  } catch (error) {
    if (hasCode(error, "not_found")) return { kind: "missing" };
    if (hasCode(error, "unavailable", "cancelled", "deadline_exceeded")) throw error;
    return undefined;
  }
}
