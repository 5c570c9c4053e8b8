import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { type Metafile, build } from "esbuild";

/** Supported browsers: those that implement the style sheet's `light-dark()`. */
const target = ["chrome123", "firefox120", "safari17.5"];

/** Bundles the page from source, with the plotting library: script, style, icon and HTML by file name, each gzipped and base64-encoded.
 *  tools/build.ts calls this for the built program; when run from source, it is called when a page is first served. */
export async function bundlePage(): Promise<{ readonly files: Record<string, string>; readonly metafile: Metafile }> {
  const folder = join(import.meta.dirname, "browser");
  const { outputFiles, metafile } = await build({
    absWorkingDir: join(folder, "../../.."),
    entryPoints: [join(folder, "page.ts"), join(folder, "page.css")],
    outdir: "/",
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target,
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
  });
  const built = outputFiles.map(({ path, contents }) => [path.slice(1), Buffer.from(contents)] as const);
  const asIs = await Promise.all(
    ["page.html", "icon.svg"].map(async (name) => [name, await readFile(join(folder, name))] as const),
  );
  const files = [...built, ...asIs].map(([name, bytes]) => [name, gzipSync(bytes, { level: 9 }).toString("base64")]);
  return { files: Object.fromEntries(files) as Record<string, string>, metafile };
}
