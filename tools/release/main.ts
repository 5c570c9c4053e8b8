// make release: node tools/release/main.ts publish | sign | page, on a machine that may push and has what docs/releasing.md lists.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findHelm } from "../../test/harness/helm.ts";
import type { Architecture } from "../../test/harness/image.ts";
import { must } from "../../test/harness/processes.ts";
import { keylessCommands, predicatesIn } from "./keyless.ts";
import type { Published } from "./making.ts";
import { publish } from "./publish.ts";
import { registryBy } from "./registry.ts";
import { readSource, root } from "./source.ts";

const folder = join(root, "dist", "release");
const say = (line: string): void => console.error(`    ${line}`);

/** A setting of the environment. @throws one sentence when it is empty. */
function setting(name: string, example: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: write, for example, ${name}=${example}`);
  return value;
}

const steps: Readonly<Record<string, () => Promise<void>>> = {
  async publish() {
    const source = await readSource({ draft: false });
    const tag = setting("TAG", `v${source.version}`);
    if (tag !== `v${source.version}`)
      throw new Error(
        `TAG is ${tag}, and package.json has version ${source.version}: tag the commit v${source.version}`,
      );
    const scratch = mkdtempSync(join(tmpdir(), "graftlet-release-"));
    try {
      const published = await publish({
        source,
        places: {
          image: setting("IMAGE", "ghcr.io/graftlet/graftlet"),
          charts: setting("CHARTS", "ghcr.io/graftlet/charts"),
        },
        registry: registryBy({ helm: await findHelm(), within: (argv) => [...argv], plain: false }),
        builder: setting(
          "BUILDER",
          "https://github.com/graftlet/graftlet/.github/workflows/release.yml@refs/tags/v0.1.0",
        ),
        folder,
        archiveOf: (architecture) => dockerArchive(architecture, scratch),
        say,
      });
      console.log(`${published.image}@${published.imageDigest}`);
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  },
  async sign() {
    const published = released();
    for (const command of keylessCommands(published, predicatesIn(folder, published), folder)) {
      say(command.slice(0, 2).join(" "));
      await must(command, { timeoutMs: 300_000 });
    }
  },
  async page() {
    const { version, files } = released();
    const all = [...files, "SHA256SUMS", "SHA256SUMS.sigstore.json"].map((name) => join(folder, name));
    const notes = `--notes-file=${join(folder, "NOTES.md")}`;
    await must(["gh", "release", "create", `v${version}`, "--verify-tag", notes, ...all], { timeoutMs: 600_000 });
  },
};

/** What `publish` left. */
function released(): Published {
  return JSON.parse(readFileSync(join(folder, "release.json"), "utf8")) as Published;
}

/** The image for an architecture by the Docker Engine of this machine, and the Dockerfile's own bases. */
async function dockerArchive(architecture: Architecture, scratch: string): Promise<string> {
  const tag = `graftlet/release:${architecture}`;
  const archive = join(scratch, `${architecture}.tar`);
  await must(["make", "image", `ARCH=${architecture}`, `TAG=${tag}`], { cwd: root, timeoutMs: 1_800_000 });
  await must(["docker", "save", `--output=${archive}`, tag], { timeoutMs: 600_000 });
  return archive;
}

try {
  const step = steps[process.argv[2] ?? ""];
  if (!step) throw new Error(`write: node tools/release/main.ts ${Object.keys(steps).join(" | ")}`);
  await step();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
