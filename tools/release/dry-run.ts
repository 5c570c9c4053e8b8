import { join } from "node:path";
import { publishDraft } from "./draft.ts";
import { type Installed, install } from "./install.ts";
import { startReleaseLab } from "./lab.ts";
import type { Published } from "./making.ts";
import { root } from "./source.ts";

/** Makes a release of this checkout, pushes it to a registry of its own, signed with a key of its own, and installs it from there.
 *  @param folder for its files. */
export async function dryRun(
  folder: string,
  say: (line: string) => void,
): Promise<{ readonly published: Published; readonly installed: Installed }> {
  await using lab = await startReleaseLab();
  const published = await publishDraft({ ...lab, tools: lab.rig.tools, folder, say });
  say("installed from there: signatures, chart, image, tarball");
  return { published, installed: await install(lab, published, folder) };
}

if (import.meta.main) {
  try {
    const folder = join(root, "dist", "release");
    const { published, installed } = await dryRun(folder, (line) => console.error(`    ${line}`));
    const chart = `oci://${published.chart}@${published.chartDigest}`;
    for (const line of [...published.files, installed.image, chart, ...installed.versions]) console.log(line.trim());
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    process.exitCode = 1;
  }
}
