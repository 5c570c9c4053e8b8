import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { packGraftletBases } from "../cluster/images/graftlet-bases.ts";
import { must } from "./processes.ts";
import { startRuntimeRig } from "./runtime-rig.ts";
import type { Tools } from "./tools.ts";

const project = join(import.meta.dirname, "..", "..");

/** What the image is made of, and how. */
const sources = [
  "Dockerfile",
  ".dockerignore",
  ".npmrc",
  "package.json",
  "package-lock.json",
  "LICENSE",
  "tsconfig.json",
  "src",
  "providers",
  "tools",
  "test/cluster/images/graftlet-bases.ts",
];

/** So many archives of older sources are kept, for checkouts side by side. */
const kept = 6;

/** What an image is built for. */
export type Architecture = "amd64" | "arm64";

export const ownArchitecture: Architecture = process.arch === "arm64" ? "arm64" : "amd64";

/**
 * The archive (`docker save`) of this checkout's image as `docker build` makes it from the Dockerfile, on bases made of Debian's
 * packages. Built once per state of the sources, in a minute or two.
 */
export async function graftletArchive(
  tools: Tools,
  say: (line: string) => void,
  architecture = ownArchitecture,
): Promise<string> {
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "images");
  const archive = join(folder, `graftlet-${architecture}-${keyOfSources()}.tar`);
  if (existsSync(archive)) return archive;
  say(`building graftlet's image for ${architecture}: once per state of its sources, about two minutes`);
  mkdirSync(folder, { recursive: true });
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-image-"));
  try {
    await buildInto(`${archive}.${process.pid}`, scratch, tools, architecture);
    renameSync(`${archive}.${process.pid}`, archive);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
    rmSync(`${archive}.${process.pid}`, { force: true });
  }
  forgetOld(folder);
  return archive;
}

async function buildInto(archive: string, scratch: string, tools: Tools, architecture: Architecture): Promise<void> {
  const bases = await packGraftletBases(scratch, tools);
  await using rig = await startRuntimeRig("image-build", "docker");
  const docker = (...args: readonly string[]): Promise<string> =>
    must([tools.path("docker"), "--host", `unix://${rig.layout.dockerSocket}`, ...args], {
      cwd: project,
      timeoutMs: 900_000,
      // The builder that every Docker Engine has; BuildKit takes the same file.
      env: { DOCKER_CONFIG: rig.layout.docker, DOCKER_BUILDKIT: "0" },
    });
  await docker("import", `--change=ENV ${bases.buildEnvironment}`, bases.build, "graftlet.test/build");
  await docker("import", `--platform=linux/${architecture}`, bases.base, "graftlet.test/base");
  const given = {
    ARCH: architecture,
    BUILD: "graftlet.test/build",
    BASE: "graftlet.test/base",
    LIBRARIES: "graftlet.test/base",
  };
  const args = Object.entries(given).map(([name, value]) => `--build-arg=${name}=${value}`);
  await docker("build", "--network=none", "--quiet", "--tag=graftlet/graftlet", ...args, ".");
  await docker("save", `--output=${archive}`, "graftlet/graftlet");
}

function keyOfSources(): string {
  const hash = createHash("sha256").update(process.version);
  for (const file of sources.flatMap(filesOf)) hash.update(file).update(readFileSync(join(project, file)));
  return hash.digest("hex").slice(0, 16);
}

function filesOf(path: string): string[] {
  if (path.endsWith("node_modules")) return [];
  if (!statSync(join(project, path)).isDirectory()) return [path];
  return readdirSync(join(project, path))
    .toSorted()
    .flatMap((name) => filesOf(join(path, name)));
}

function forgetOld(folder: string): void {
  const archives = readdirSync(folder)
    .filter((name) => /^graftlet-.*\.tar$/.test(name))
    .map((name) => ({ path: join(folder, name), made: statSync(join(folder, name)).mtimeMs }))
    .toSorted((a, b) => b.made - a.made);
  for (const { path } of archives.slice(kept)) rmSync(path, { force: true });
}
