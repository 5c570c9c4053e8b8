import { constants } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { CodedError, codeOfErrno, messageOf } from "../lib/errors.ts";

/** A file that may hold a manifest: its text, or why it cannot be taken. */
export type ManifestFile =
  | { readonly path: string; readonly text: string }
  | { readonly path: string; readonly problem: string };

/** What an API server takes of an object is a little more; a pod of that size could never have a mirror pod. */
const longestBytes = 1 << 20;

/** The manifests of a directory (not of those in it, and none whose name begins with a dot), by name; or the one of a file.
 *  Never blocks on what is no file, and follows no link that leads out of the directory.
 *  @returns undefined when nothing is at the path. @throws CodedError when the path itself cannot be read.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/#static-pod-creation */
export async function readManifests(path: string): Promise<readonly ManifestFile[] | undefined> {
  try {
    const found = await stat(path);
    if (!found.isDirectory()) {
      const file = await readManifest(path, dirname(await realpath(path)));
      return file && [file];
    }
    const root = await realpath(path);
    const names = (await readdir(path)).filter((name) => !name.startsWith(".")).sort();
    const files = await Promise.all(names.map((name) => readManifest(join(path, name), root)));
    return files.filter((file) => file !== undefined);
  } catch (error) {
    const code = codeOfErrno(errnoOf(error));
    if (code === "not_found") return undefined;
    throw new CodedError(code, `cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** @returns undefined where the file has gone meanwhile. */
async function readManifest(path: string, root: string): Promise<ManifestFile | undefined> {
  try {
    const real = await realpath(path);
    if (!real.startsWith(root.endsWith("/") ? root : `${root}/`))
      return { path, problem: `it is a link out of its folder, to ${real}: put the file itself there` };
    return await readRegular(path, real);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT" && !(await isLink(path))) return undefined;
    const problem =
      errno === "ENOENT" ? "it is a link to nothing: remove it" : `it cannot be read (${messageOf(error)})`;
    return { path, problem };
  }
}

async function readRegular(path: string, real: string): Promise<ManifestFile> {
  // A FIFO or a device is opened without waiting for anybody, and not read.
  const kind = await stat(real);
  if (kind.isDirectory()) return { path, problem: "it is a directory: manifests are read from one folder only" };
  if (!kind.isFile()) return { path, problem: "it is no file: put a file there" };
  await using file = await open(real, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  if (!(await file.stat()).isFile()) return { path, problem: "it is no file: put a file there" };
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of file.createReadStream({ autoClose: false, end: longestBytes })) {
    parts.push(part as Buffer);
    length += (part as Buffer).length;
  }
  if (length > longestBytes)
    return { path, problem: `it is longer than ${longestBytes} bytes: an API server could not take such a pod` };
  return { path, text: Buffer.concat(parts).toString("utf8") };
}

async function isLink(path: string): Promise<boolean> {
  const entries = await readdir(dirname(path), { withFileTypes: true }).catch(() => []);
  return entries.some((entry) => entry.isSymbolicLink() && join(dirname(path), entry.name) === path);
}

function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}
