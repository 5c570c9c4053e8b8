import { open, rename } from "node:fs/promises";

/** Atomically replaces a local file by writing a temporary file and renaming it: readers see the old content or the new.
 *  @param mode permission bits. @throws what the file system throws. */
export async function writeFileAtomically(path: string, text: string, mode: number): Promise<void> {
  const temporary = `${path}.new`;
  await using file = await open(temporary, "w", mode);
  await file.chmod(mode);
  await file.writeFile(text);
  await file.sync();
  await rename(temporary, path);
}
