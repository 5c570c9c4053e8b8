import { posix } from "node:path";
import { CodedError } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** Reads a regular file in an untrusted directory tree: symlinks may point within the tree, never out of it.
 *  @param below names separated by slashes, none of them `..`.
 *  @throws failed_precondition for a path outside the tree or a non-regular file, resource_exhausted for more than `maxBytes`,
 *  not_found. */
export async function readWithin(
  fs: Pick<HostFs, "realpath" | "open" | "lstat">,
  { base, below, maxBytes }: { readonly base: string; readonly below: string; readonly maxBytes: number },
  signal: AbortSignal,
): Promise<Buffer> {
  const path = posix.join(base, below);
  const [root, real] = await Promise.all([fs.realpath(base, signal), fs.realpath(path, signal)]);
  const elsewhere = () => new CodedError("failed_precondition", `${path} is outside ${base}`);
  if (!real.startsWith(`${root}/`)) throw elsewhere();
  await using file = await fs.open(real, { noFollow: true, signal });
  const { size, inode } = await file.stat(signal);
  // A component of the path may have been replaced in between.
  if ((await fs.realpath(path, signal)) !== real || (await fs.lstat(real, signal)).inode !== inode) throw elsewhere();
  if (size > maxBytes) throw new CodedError("resource_exhausted", `${path} is larger than ${maxBytes} bytes`);
  return await file.read(0, maxBytes, signal);
}
