import * as fsp from "node:fs/promises";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import { type Directory, openDirectory } from "./directory.ts";
import { codedError, hasErrno } from "./errors.ts";

/** A directory on the current path. */
interface Level {
  readonly name: Buffer;
  directory: Directory;
  /** False for a directory far up the path: it has been closed, and is reopened on the way back up. */
  open: boolean;
  /** Subdirectories that remain to be removed. */
  readonly ahead: Buffer[];
  /** True if the directory may have more entries than have been read. */
  more: boolean;
  /** Number of entries removed since the directory was last read; 1 before the first read. */
  gone: number;
}

const maxOpen = 32;
/** Limit of subdirectories read ahead per level, which bounds memory. */
const maxAhead = 1000;
/** Larger directories are read in parts. */
const smallDirectoryBytes = 2 ** 18;
const readBatchSize = 256;
const maxPathText = 400;

/** Removes a directory tree and nothing else, even if parts of it are replaced meanwhile. Supports any names, depth and number of
 *  entries. If an entry cannot be removed, the others are removed nevertheless.
 *  @param parent the directory that contains it.
 *  @throws CodedError, the first failure, once nothing more can be removed; failed_precondition for a mount point
 *  below. */
export async function removeTree(parent: Directory, name: Buffer, signal?: AbortSignal): Promise<void> {
  const removal = new Removal(parent, signal);
  await removal.run(name);
  if (removal.failure) throw removal.failure;
}

class Removal {
  failure: CodedError | undefined;
  readonly #levels: Level[] = [];
  readonly #parent: Directory;
  readonly #signal: AbortSignal | undefined;
  constructor(parent: Directory, signal: AbortSignal | undefined) {
    this.#parent = parent;
    this.#signal = signal;
  }

  async run(name: Buffer): Promise<void> {
    try {
      await this.#enter(this.#parent, name);
      for (let level = this.#levels.at(-1); level; level = this.#levels.at(-1)) {
        throwIfAborted(this.#signal);
        const next = level.ahead.pop();
        if (next) await this.#enter(level.directory, next);
        else if (level.more) await this.#read(level);
        else await this.#leave(level);
      }
    } finally {
      for (const level of this.#levels) if (level.open) await close(level);
    }
  }

  /** Removes an empty directory, and enters any other. */
  async #enter(within: Directory, entry: Buffer): Promise<void> {
    const error = await this.#attempt(fsp.rmdir(within.at(entry)));
    // The directory has been replaced by a link or a file.
    if (hasErrno(error, "ENOTDIR")) return this.#failed(entry, await this.#attempt(fsp.unlink(within.at(entry))));
    if (!hasErrno(error, "ENOTEMPTY", "EEXIST")) return this.#failed(entry, error);
    const directory = await openDirectory(within.at(entry)).catch((why: unknown) => this.#failed(entry, why));
    if (!directory) return;
    if (directory.device !== this.#parent.device) {
      await directory.close();
      return this.#failed(entry, mountPointError(this.#pathTo(entry)));
    }
    this.#levels.push({ name: entry, directory, open: true, ahead: [], more: true, gone: 1 });
    const far = this.#levels.at(-1 - maxOpen);
    if (far?.open) await close(far);
  }

  /** Removes other files and collects subdirectories. */
  async #read(level: Level): Promise<void> {
    level.more = false;
    if (level.gone === 0) return;
    level.gone = 0;
    const { directory, ahead } = level;
    for await (const { bytes, isDirectory } of entriesOf(directory)) {
      throwIfAborted(this.#signal);
      if (isDirectory) ahead.push(bytes);
      else this.#failed(bytes, await this.#attempt(fsp.unlink(directory.at(bytes))));
      level.more = ahead.length === maxAhead;
      if (level.more) break;
    }
  }

  async #leave(level: Level): Promise<void> {
    const above = this.#levels.at(-2);
    if (above && !above.open) await reopen(above, level);
    this.#levels.pop();
    await close(level);
    const within = above?.directory ?? this.#parent;
    this.#failed(level.name, await this.#attempt(fsp.rmdir(within.at(level.name))));
  }

  /** Awaits a removal. @returns its error; undefined if it succeeded. */
  async #attempt(removal: Promise<void>): Promise<unknown> {
    try {
      await removal;
      const within = this.#levels.at(-1);
      if (within) within.gone += 1;
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #failed(entry: Buffer, error: unknown): void {
    if (error !== undefined && !hasErrno(error, "ENOENT")) this.failure ??= codedError(this.#pathTo(entry), error);
  }

  #pathTo(entry: Buffer): string {
    return formatPath([...this.#levels.map(({ name }) => name), entry]);
  }
}

/** Reopens a parent directory through its child. @throws failed_precondition when the child has been moved out of it. */
async function reopen(above: Level, below: Level): Promise<void> {
  const directory = await openDirectory(below.directory.at(".."));
  const { device, inode } = above.directory;
  if (directory.device === device && directory.inode === inode)
    return void Object.assign(above, { directory, open: true });
  await directory.close();
  throw new CodedError("failed_precondition", `${formatPath([below.name])} was moved while it was being removed`);
}

async function close(level: Level): Promise<void> {
  level.open = false;
  await level.directory.close();
}

/** Lists the entries of a directory; none if it has been removed. */
async function* entriesOf({ path, size }: Directory) {
  // Latin-1 preserves every byte of a name.
  const how = { encoding: "latin1", withFileTypes: true, bufferSize: readBatchSize } as const;
  try {
    for await (const entry of size <= smallDirectoryBytes ? await fsp.readdir(path, how) : await fsp.opendir(path, how))
      yield { bytes: Buffer.from(entry.name, "latin1"), isDirectory: entry.isDirectory() };
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
  }
}

/** Formats a path for messages, shortened in the middle. */
function formatPath(names: readonly Buffer[]): string {
  const path = names.map((name) => name.toString()).join("/");
  return path.length > maxPathText ? `${path.slice(0, maxPathText / 2)}…${path.slice(-maxPathText / 2)}` : path;
}

export function mountPointError(path: string): CodedError {
  return new CodedError("failed_precondition", `${path} is a mount point: unmount it first`);
}
