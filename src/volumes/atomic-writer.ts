import { hasCode, ignoreCode } from "../lib/errors.ts";
import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { FileChange, Host } from "../seams/host.ts";
import { groupDirectoryChanges } from "./fs-group.ts";
import type { VolumeContent, ContentFile } from "./content.ts";

export interface AtomicWriterDeps {
  readonly host: Host;
  readonly clock: Clock;
  /** Group of created directories. */
  readonly group?: number | undefined;
  /** Replaces existing files. The caller delays this while a container of the pod starts; by default it runs at once. */
  readonly replaceFiles?: (replace: () => Promise<void>) => Promise<void>;
}

const dataLink = "..data";
const newDataLink = "..data_tmp";

/** Replaces the files of a directory atomically: readers see either the old set or the new one. Files are in a hidden directory
 *  with a new name; `..data` links to it and is replaced by a rename, and each visible name links through `..data`. Nothing is
 *  written if nothing changed. The old files are removed in the same step: a bind mount of a removed file can no longer be
 *  mounted elsewhere, which is why `replaceFiles` decides when that happens.
 *  @returns true if something was written. */
export async function writeAtomically(
  { host, clock, group, replaceFiles = (replace) => replace() }: AtomicWriterDeps,
  directory: string,
  content: VolumeContent,
  signal: AbortSignal,
): Promise<boolean> {
  const [current, entries] = await Promise.all([
    currentTarget(host, directory, signal),
    host.fs.list(directory, signal),
  ]);
  const names = entries.map(({ name }) => name);
  const wanted = topLevelNames(content);
  // Directories here are mount points of other volumes: only links are removed.
  const stale = entries
    .filter(({ name, kind }) => kind === "symlink" && !name.startsWith("..") && !wanted.has(name))
    .map(({ name }) => name);
  const linked = stale.length === 0 && [...wanted].every((name) => names.includes(name));
  const leftOver = names.filter((name) => name.startsWith("..") && name !== dataLink && name !== current);
  const tidy = leftOver.map((name): FileChange => ({ kind: "remove", path: `${directory}/${name}`, recursive: true }));
  if (current !== undefined && linked && (await isSame(host, `${directory}/${current}`, content, signal))) {
    if (tidy.length > 0) await host.fs.apply(tidy, signal);
    return false;
  }
  const missing = [...wanted].filter((name) => !names.includes(name));
  const changes: FileChange[] = [
    ...tidy,
    ...newVersion(directory, versionName(clock, names), { content, group }, missing),
    ...stale.map((name): FileChange => ({ kind: "remove", path: `${directory}/${name}` })),
    ...(current === undefined ? [] : [{ kind: "remove", path: `${directory}/${current}`, recursive: true } as const]),
  ];
  await replaceFiles(() => host.fs.apply(changes, signal));
  return true;
}

/** Changes that write the files into a directory known to be empty, without reading it. */
export function initialChanges(
  clock: Clock,
  directory: string,
  content: VolumeContent,
  group: number | undefined,
): readonly FileChange[] {
  const target = versionName(clock, []);
  return [
    ...newFiles(directory, target, { content, group }, [...topLevelNames(content)]),
    { kind: "symlink", path: `${directory}/${dataLink}`, target },
  ];
}

interface OwnedContent {
  readonly content: VolumeContent;
  readonly group: number | undefined;
}

/** Changes that write new files and then show them in place of the old ones. @param missing names that have no link yet. */
function newVersion(
  directory: string,
  target: string,
  owned: OwnedContent,
  missing: readonly string[],
): readonly FileChange[] {
  return [
    ...newFiles(directory, target, owned, missing),
    { kind: "symlink", path: `${directory}/${newDataLink}`, target },
    { kind: "rename", from: `${directory}/${newDataLink}`, to: `${directory}/${dataLink}` },
  ];
}

/** @param missing names that have no link yet. */
function newFiles(
  directory: string,
  target: string,
  owned: OwnedContent,
  missing: readonly string[],
): readonly FileChange[] {
  return [
    ...fileChanges(`${directory}/${target}`, owned),
    // A new link dangles until the rename, so that all names change at once.
    ...missing.flatMap((name): FileChange[] => {
      const path = `${directory}/${name}`;
      return [{ kind: "symlink", path, target: `${dataLink}/${name}` }, ...ownerChange(path, linkedFile(owned, name))];
    }),
  ];
}

function topLevelNames(content: VolumeContent): ReadonlySet<string> {
  return new Set([...content.keys()].map((path) => path.split("/")[0] ?? path));
}

/** A version directory name such as `..2026_01_31_12_00_00.123456789` (UTC and a random number) that is not taken. */
function versionName(clock: Clock, taken: readonly string[]): string {
  const time = rfc3339(clock.now()).slice(0, 19).replace(/[-T:]/g, "_");
  let number = Math.floor(clock.jitter(1, 4_294_967_296));
  while (taken.includes(`..${time}.${number}`)) number += 1;
  return `..${time}.${number}`;
}

const directoryMode = 0o755;

function fileChanges(root: string, { content, group }: OwnedContent): FileChange[] {
  const directories = new Set<string>();
  for (const path of content.keys()) {
    const names = path.split("/").slice(0, -1);
    names.forEach((_, depth) => directories.add(names.slice(0, depth + 1).join("/")));
  }
  return [
    ...[root, ...[...directories].map((path) => `${root}/${path}`)].flatMap((path): readonly FileChange[] => [
      { kind: "mkdir", path, mode: directoryMode },
      ...groupDirectoryChanges(group, { path, mode: directoryMode }),
    ]),
    ...[...content].flatMap(([path, { data, mode, uid, gid }]): FileChange[] => [
      { kind: "write", path: `${root}/${path}`, data, mode },
      ...ownerChange(`${root}/${path}`, { uid, gid }),
    ]),
  ];
}

/** Chowns a file, or the link itself, to its owner; files of root already have root's IDs. */
function ownerChange(path: string, { uid = 0, gid = 0 }: Pick<ContentFile, "uid" | "gid">): FileChange[] {
  return uid === 0 && gid === 0 ? [] : [{ kind: "chown", path, uid, gid }];
}

/** The first file behind a link in the volume's top directory. The link gets the file's owner: with `fs.protected_symlinks` the
 *  kernel follows a link in a sticky, world-writable directory only if the link belongs to the reader or to the directory's
 *  owner. */
function linkedFile({ content }: OwnedContent, name: string): Pick<ContentFile, "uid" | "gid"> {
  const found = [...content].find(([path]) => path === name || path.startsWith(`${name}/`));
  return found?.[1] ?? {};
}

async function currentTarget(host: Host, directory: string, signal: AbortSignal): Promise<string | undefined> {
  const reading = host.fs.readlink(`${directory}/${dataLink}`, signal);
  const target = await ignoreCode(reading, "not_found", "invalid_argument");
  return target?.startsWith("..") && !target.includes("/") ? target : undefined;
}

/** True if the directory holds exactly these files, with the same content, modes and owners. */
async function isSame(host: Host, root: string, content: VolumeContent, signal: AbortSignal): Promise<boolean> {
  try {
    const present = await walk(host, root, "", signal);
    if (present.length !== content.size) return false;
    for (const path of present) {
      const wanted = content.get(path);
      if (!wanted) return false;
      const { mode, uid, gid } = await host.fs.lstat(`${root}/${path}`, signal);
      if (mode !== wanted.mode || uid !== (wanted.uid ?? uid) || gid !== (wanted.gid ?? gid)) return false;
      if (!(await host.fs.readFile(`${root}/${path}`, { signal })).equals(wanted.data)) return false;
    }
    return true;
  } catch (error) {
    if (hasCode(error, "not_found", "failed_precondition")) return false;
    throw error;
  }
}

async function walk(host: Host, root: string, below: string, signal: AbortSignal): Promise<string[]> {
  const entries = await host.fs.list(below ? `${root}/${below}` : root, signal);
  const found = entries.map(({ name, kind }) => {
    const path = below ? `${below}/${name}` : name;
    return kind === "directory" ? walk(host, root, path, signal) : Promise.resolve([path]);
  });
  return (await Promise.all(found)).flat();
}
