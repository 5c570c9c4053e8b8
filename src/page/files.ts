import { gunzipSync } from "node:zlib";

/** Compressed files of the page, by path. */
export type PageFiles = ReadonlyMap<string, PageFile>;

export interface PageFile {
  readonly type: string;
  readonly gzip: Buffer;
}

/** Set by tools/build.ts in the built program: JSON of the files by name, each gzipped and base64-encoded. A string, so that the branch
 *  for running from source is eliminated. */
declare const builtPage: string;

const types: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** Returns the page's files from the built program, or bundles them from source. @throws if esbuild is not installed. */
export async function pageFiles(): Promise<PageFiles> {
  const built =
    typeof builtPage === "undefined"
      ? (await (await import("./bundle.ts")).bundlePage()).files
      : (JSON.parse(builtPage) as Readonly<Record<string, string>>);
  return new Map(
    Object.entries(built).map(([name, base64]) => [
      name === "page.html" ? "/" : `/${name}`,
      { type: types[name.slice(name.lastIndexOf(".") + 1)] ?? "", gzip: Buffer.from(base64, "base64") },
    ]),
  );
}

/** Uncompressed content of a file. */
export function plain({ gzip }: PageFile): Buffer {
  return gunzipSync(gzip);
}
