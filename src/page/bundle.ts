import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { type Metafile, build } from "esbuild";

/** Browsers that the page is for: those that know its style's `light-dark()`. */
const target = ["chrome123", "firefox120", "safari17.5"];

/** Bundles the page of its source, with the plotting library: its script, its style, its icon and its HTML, by name, each compressed by
 *  gzip and in base64. tools/build.ts calls it for the built program; from the source it is called when a page is served. */
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
