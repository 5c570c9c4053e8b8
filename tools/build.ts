import { chmod, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";
import { noticesOf } from "./notices.ts";

/** One self-contained file that Node 22.19 or later runs, and the licences of the packages that are in it.
 *  Usage: node tools/build.ts [ENTRY [DIRECTORY]], by default src/main.ts and dist. */
const root = join(import.meta.dirname, "..");
const [entry = join(root, "src/main.ts"), directory = join(root, "dist")] = process.argv.slice(2);
const outfile = join(directory, "graftlet.mjs");

/** CommonJS packages in the bundle call require and read their own place. The entry's own #! line stays before it. */
const banner = `import { createRequire as __createRequire } from "node:module";
const require = __createRequire(import.meta.url);
const __filename = import.meta.filename;
const __dirname = import.meta.dirname;`;

await rm(directory, { recursive: true, force: true });
await mkdir(directory, { recursive: true });
const { metafile } = await build({
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
  // Native parts that ssh2 does without where they are missing.
  external: ["cpu-features", "*.node"],
  metafile: true,
  logLevel: "warning",
});
await chmod(outfile, 0o755);
const packages = await noticesOf(metafile, root);
await writeFile(join(directory, "THIRD-PARTY-NOTICES.txt"), packages.text);
const bytes = Object.values(metafile.outputs).reduce((sum, output) => sum + output.bytes, 0);
process.stdout.write(`built ${outfile}: ${(bytes / 2 ** 20).toFixed(1)} MiB with ${packages.count} packages in it\n`);
