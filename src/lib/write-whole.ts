import { open, rename } from "node:fs/promises";

/** Writes a file of graftlet's own machine beside its place and renames it: a reader sees the old file or the new one.
 *  @param mode permission bits. @throws what the file system throws. */
export async function writeWhole(path: string, text: string, mode: number): Promise<void> {
  const beside = `${path}.new`;
  await using file = await open(beside, "w", mode);
  await file.chmod(mode);
  await file.writeFile(text);
  await file.sync();
  await rename(beside, path);
}
