import { constants } from "node:fs";
import { open, opendir, readdir, realpath, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { CodedError, codeOfErrno, messageOf } from "../lib/errors.ts";
import { maxManifestBytes } from "./manifest.ts";

/** A potential manifest file: its text, or the reason why it is refused. */
export type ManifestFile =
  | { readonly path: string; readonly text: string }
  | { readonly path: string; readonly problem: string };

/** Limits of one directory: nine times a node's maximum number of pods, and ample bytes for that many files. */
const maxFiles = 1_000;
const maxBytes = 16 << 20;
const maxConcurrentReads = 8;

/** Reads the manifests of a directory (without subdirectories and names that begin with a dot), by name; or a single file. Never blocks
 *  on special files, and follows no link out of the directory. @returns undefined if nothing exists at the path. @throws CodedError if
 *  the path itself is unreadable.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/#static-pod-creation */
export async function readManifests(path: string): Promise<readonly ManifestFile[] | undefined> {
  try {
    const found = await stat(path);
    if (!found.isDirectory()) {
      const file = await readManifest(path, dirname(await realpath(path)));
      return file && [file];
    }
    return await readFolder(path);
  } catch (error) {
    if (error instanceof CodedError) throw error;
    const code = codeOfErrno(errnoOf(error));
    if (code === "not_found") return undefined;
    throw new CodedError(code, `cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

async function readFolder(path: string): Promise<readonly ManifestFile[]> {
  const root = await realpath(path);
  const names: string[] = [];
  for await (const { name } of await opendir(path)) {
    if (!name.startsWith(".")) names.push(name);
    if (names.length > maxFiles) throw directoryTooLarge(`${maxFiles} files`);
  }
  const files: ManifestFile[] = [];
  let length = 0;
  names.sort();
  for (let from = 0; from < names.length; from += maxConcurrentReads) {
    const some = names.slice(from, from + maxConcurrentReads).map((name) => readManifest(join(path, name), root));
    for (const file of await Promise.all(some)) {
      if (!file) continue;
      files.push(file);
      length += "text" in file ? file.text.length : 0;
    }
    if (length > maxBytes) throw directoryTooLarge(`${maxBytes} bytes`);
  }
  return files;
}

/** Error for a directory above a limit. None of its files is read, because a partial read could replace the pod of a file that was not
 *  read. */
function directoryTooLarge(most: string): CodedError {
  return new CodedError("invalid_argument", `it contains more than ${most}: it is not read until there are fewer`);
}

/** @returns undefined if the file has disappeared. */
async function readManifest(path: string, root: string): Promise<ManifestFile | undefined> {
  try {
    const real = await realpath(path);
    if (!real.startsWith(root.endsWith("/") ? root : `${root}/`))
      return { path, problem: `it is a symbolic link out of its directory, to ${real}: replace it with the file` };
    return await readRegular(path, real);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT" && !(await isLink(path))) return undefined;
    const problem =
      errno === "ENOENT" ? "it is a dangling symbolic link: remove it" : `it cannot be read (${messageOf(error)})`;
    return { path, problem };
  }
}

async function readRegular(path: string, real: string): Promise<ManifestFile> {
  // A FIFO or a device is opened without blocking, and not read.
  const kind = await stat(real);
  if (kind.isDirectory()) return { path, problem: "it is a directory: manifests in subdirectories are not read" };
  if (!kind.isFile()) return { path, problem: "it is not a regular file" };
  await using file = await open(real, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  if (!(await file.stat()).isFile()) return { path, problem: "it is not a regular file" };
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of file.createReadStream({ autoClose: false, end: maxManifestBytes })) {
    parts.push(part as Buffer);
    length += (part as Buffer).length;
  }
  if (length > maxManifestBytes)
    return {
      path,
      problem: `it is longer than ${maxManifestBytes} bytes: an API server could not store such a pod`,
    };
  return { path, text: Buffer.concat(parts).toString("utf8") };
}

async function isLink(path: string): Promise<boolean> {
  const entries = await readdir(dirname(path), { withFileTypes: true }).catch(() => []);
  return entries.some((entry) => entry.isSymbolicLink() && join(dirname(path), entry.name) === path);
}

function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}
