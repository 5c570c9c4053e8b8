import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/** The part of esbuild's metafile that says what came into the bundle. */
export interface Bundle {
  readonly outputs: Readonly<
    Record<string, { readonly inputs: Readonly<Record<string, { readonly bytesInOutput: number }>> }>
  >;
}

/** The licence texts of all packages of which at least a byte is in the bundle, sorted by name.
 *  @param root the folder that the bundle's input paths are relative to.
 *  @throws when a package says nothing of its licence: then it must not be shipped. */
export async function noticesOf(
  bundle: Bundle,
  root: string,
): Promise<{ readonly text: string; readonly count: number }> {
  const folders = packageFolders(bundle);
  const notices = await Promise.all(folders.map((folder) => noticeOf(join(root, folder))));
  const distinct = [...new Set(notices)].toSorted();
  const head = "graftlet contains the packages below, each under its own licence.\n";
  return { text: [head, ...distinct].join(`\n${"-".repeat(78)}\n\n`), count: distinct.length };
}

/** Folders of the packages that a bundle draws from, such as `node_modules/@scope/name`. */
export function packageFolders(bundle: Bundle): string[] {
  const folders = new Set<string>();
  for (const output of Object.values(bundle.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
      const folder = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0];
      if (folder && bytesInOutput > 0) folders.add(folder);
    }
  }
  return [...folders].toSorted();
}

async function noticeOf(folder: string): Promise<string> {
  const manifest: unknown = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const { name, version, license } = manifest as {
    readonly name: string;
    readonly version: string;
    readonly license?: unknown;
  };
  const files = (await readdir(folder)).filter((file) => /^(licen[cs]e|copying|notice)([.-]|$)/i.test(file)).toSorted();
  if (files.length === 0 && typeof license !== "string")
    throw new Error(`${name} ${version} names no licence: do not bundle it`);
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")));
  return [
    `${name} ${version} (${typeof license === "string" ? license : "see below"})\n`,
    ...texts.map((text) => `${text.trim()}\n`),
  ].join("\n");
}
