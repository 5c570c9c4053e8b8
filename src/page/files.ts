import { gunzipSync } from "node:zlib";

/** The page's files by path, compressed. */
export type PageFiles = ReadonlyMap<string, PageFile>;

export interface PageFile {
  readonly type: string;
  readonly gzip: Buffer;
}

/** In the built program tools/build.ts puts the files here, as JSON: by name, each compressed and in base64. A text, so that the branch
 *  for the source is left out of it. */
declare const builtPage: string;

const types: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** The page's files: those in the built program, else made of the source. @throws where the source's esbuild is not installed. */
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

/** A file as it was. */
export function plain({ gzip }: PageFile): Buffer {
  return gunzipSync(gzip);
}
