import { globSync } from "node:fs";
import { chmod, mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Plugin, build } from "esbuild";
import { withoutComments } from "../src/lib/program-text.ts";
import { bundlePage } from "../src/page/bundle.ts";
import { noticesOf } from "./notices.ts";
import { sourcePlaces } from "./source-places.ts";

/** One self-contained file that Node 22.19 or later runs, and the licences of the packages that are in it.
 *  Usage: node tools/build.ts [ENTRY [DIRECTORY]], by default src/main.ts and dist. */
const root = join(import.meta.dirname, "..");
const [entry = join(root, "src/main.ts"), directory = join(root, "dist")] = process.argv.slice(2);
const outfile = join(directory, "graftlet.mjs");

/** Filled in after the build, on a line of its own. */
const noPlaces = "const __sourcePlaces = '{}';";

/** CommonJS packages in the bundle call require and read their own place. The entry's own #! line stays before it. */
const banner = `import { createRequire as __createRequire } from "node:module";
const require = __createRequire(import.meta.url);
const __filename = import.meta.filename;
const __dirname = import.meta.dirname;
${noPlaces}`;

/** Loads node:http by require: an import reads each of its exports, and that of its WebSocket has Node load its fetch, 3 MiB. */
const requiredHttp: Plugin = {
  name: "node:http by require",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?http$/ }, ({ kind }) =>
      kind === "import-statement" ? { path: "node:http", namespace: "required" } : undefined,
    );
    onLoad({ filter: /^/, namespace: "required" }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};

/** The build's file of that ending. */
function output(ending: string): string {
  const file = outputFiles.find(({ path }) => path.endsWith(ending));
  if (!file) throw new Error(`the build has made no ${ending}`);
  return file.text;
}

/** Programs that run on targets, by path. */
async function programs(): Promise<Record<string, string>> {
  const paths = globSync("{src,providers}/**/*.{py,pl,sh}", { cwd: root });
  const read = async (path: string) => [path, withoutComments(await readFile(join(root, path), "utf8"))] as const;
  return Object.fromEntries(await Promise.all(paths.map(read)));
}

await rm(directory, { recursive: true, force: true });
await mkdir(directory, { recursive: true });
const page = await bundlePage();
const { metafile, outputFiles } = await build({
  absWorkingDir: root,
  entryPoints: [entry],
  outfile,
  bundle: true,
  platform: "node",
  target: "node22.19",
  format: "esm",
  banner: { js: banner },
  minifySyntax: true,
  // Every start reads the whole file, --version's too; a stack still names functions and lines.
  minifyWhitespace: true,
  lineLimit: 120,
  legalComments: "none",
  define: { builtPage: JSON.stringify(JSON.stringify(page.files)), builtPrograms: JSON.stringify(await programs()) },
  // For the places in the source that text logs name; the map itself is not shipped.
  sourcemap: "external",
  sourcesContent: false,
  write: false,
  // Native parts that ssh2 does without where they are missing.
  external: ["cpu-features", "*.node"],
  metafile: true,
  plugins: [requiredHttp],
  logLevel: "warning",
});
const built = output(".mjs");
const places = JSON.stringify(sourcePlaces(built, output(".mjs.map")));
await writeFile(
  outfile,
  built.replace(noPlaces, () => noPlaces.replace("{}", () => places)),
);
await chmod(outfile, 0o755);
const packages = await noticesOf({ outputs: { ...page.metafile.outputs, ...metafile.outputs } }, root);
await writeFile(join(directory, "THIRD-PARTY-NOTICES.txt"), packages.text);
const { size: bytes } = await stat(outfile);
process.stdout.write(`built ${outfile}: ${(bytes / 2 ** 20).toFixed(1)} MiB with ${packages.count} packages in it\n`);
