import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { buildEnvironment, type GraftletBases, packGraftletBases } from "../cluster/images/graftlet-bases.ts";
import { must } from "./processes.ts";
import { startRuntimeRig } from "./runtime-rig.ts";
import type { Tools } from "./tools.ts";
import { turn } from "./turn.ts";

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
  "tools/build.ts",
  "tools/notices.ts",
  "test/cluster/images/graftlet-bases.ts",
];

const basesSources = [
  "package-lock.json",
  "package.json",
  ".npmrc",
  "test/cluster/images/graftlet-bases.ts",
  "test/cluster/images/catalog.ts",
  "test/cluster/images/rootfs.ts",
];

/** So many archives of older sources are kept, for checkouts side by side. */
const kept = 6;

/** What an image is built for. */
export type Architecture = "amd64" | "arm64";

export const ownArchitecture: Architecture = process.arch === "arm64" ? "arm64" : "amd64";

/**
 * The archive (`docker save`) of a checkout's image, by default this one's, as `docker build` makes it from the Dockerfile, on bases made of Debian's
 * packages. Built once per state of the sources, in a minute or two.
 */
export async function graftletArchive(
  tools: Tools,
  say: (line: string) => void,
  {
    architecture = ownArchitecture,
    checkout = project,
  }: { readonly architecture?: Architecture; readonly checkout?: string | undefined } = {},
): Promise<string> {
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "images");
  const archive = join(folder, `graftlet-${architecture}-${keyOf(sources, checkout)}.tar`);
  if (existsSync(archive)) return archive;
  mkdirSync(folder, { recursive: true });
  await using _ = await turn(join(folder, ".building"));
  if (existsSync(archive)) return archive;
  say(`building graftlet's image for ${architecture}: once per state of its sources, about two minutes`);
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-image-"));
  try {
    await buildInto(`${archive}.${process.pid}`, scratch, tools, { architecture, checkout });
    renameSync(`${archive}.${process.pid}`, archive);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
    rmSync(`${archive}.${process.pid}`, { force: true });
  }
  forgetOld(folder);
  return archive;
}

async function buildInto(
  archive: string,
  scratch: string,
  tools: Tools,
  { architecture, checkout }: { readonly architecture: Architecture; readonly checkout: string },
): Promise<void> {
  const bases = await graftletBases(join(archive, ".."), scratch, tools);
  await using rig = await startRuntimeRig("image-build", "docker", { kit: { programs: [], images: [] } });
  const docker = (...args: readonly string[]): Promise<string> =>
    must([tools.path("docker"), "--host", `unix://${rig.layout.dockerSocket}`, ...args], {
      cwd: checkout,
      timeoutMs: 900_000,
      // The builder that every Docker Engine has; BuildKit takes the same file.
      env: { DOCKER_CONFIG: rig.layout.docker, DOCKER_BUILDKIT: "0" },
    });
  const build = {
    name: "graftlet.test/build",
    architecture: ownArchitecture,
    environment: buildEnvironment.split(" "),
  };
  const base = { name: "graftlet.test/base", architecture, environment: [] };
  for (const [files, image] of [[bases.build, build] as const, [bases.base, base] as const])
    await docker("load", `--input=${await imageOf(files, image, join(scratch, image.architecture + basename(files)))}`);
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

/** Makes an archive for `docker load` of an image with one layer. (`docker import` takes this machine's architecture for granted.) */
async function imageOf(
  files: string,
  { name, architecture, environment }: { name: string; architecture: Architecture; environment: readonly string[] },
  folder: string,
): Promise<string> {
  const digest = (await must(["sha256sum", files], { timeoutMs: 300_000 })).split(" ")[0];
  const config = {
    architecture,
    os: "linux",
    config: { Env: environment },
    rootfs: { type: "layers", diff_ids: [`sha256:${digest}`] },
    history: [{ created: "1970-01-01T00:00:00Z" }],
  };
  mkdirSync(folder);
  symlinkSync(files, join(folder, "layer.tar"));
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const manifest = [{ Config: "config.json", RepoTags: [`${name}:latest`], Layers: ["layer.tar"] }];
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest));
  await must(["tar", "--dereference", "-C", folder, "-cf", `${folder}.image`, "."], { timeoutMs: 300_000 });
  return `${folder}.image`;
}

/** The bases, packed once per state of what is in them. */
async function graftletBases(folder: string, scratch: string, tools: Tools): Promise<GraftletBases> {
  const own = join(folder, `graftlet-bases-${keyOf(basesSources, project)}`);
  if (!existsSync(own)) {
    const made = await packGraftletBases(scratch, tools);
    const partial = join(scratch, "bases");
    mkdirSync(partial);
    for (const file of [made.base, made.build]) renameSync(file, join(partial, basename(file)));
    for (const name of readdirSync(folder).filter((name) => name.startsWith("graftlet-bases-")))
      rmSync(join(folder, name), { recursive: true });
    await must(["mv", partial, own], { timeoutMs: 300_000 });
  }
  return { base: join(own, "base.tar"), build: join(own, "build.tar") };
}

function keyOf(paths: readonly string[], checkout: string): string {
  const hash = createHash("sha256").update(process.version);
  const files = paths.flatMap((path) => filesOf(path, checkout));
  for (const file of files) hash.update(file).update(readFileSync(join(checkout, file)));
  return hash.digest("hex").slice(0, 16);
}

function filesOf(path: string, checkout: string): string[] {
  if (path.endsWith("node_modules")) return [];
  if (!statSync(join(checkout, path)).isDirectory()) return [path];
  return readdirSync(join(checkout, path))
    .toSorted()
    .flatMap((name) => filesOf(join(path, name), checkout));
}

function forgetOld(folder: string): void {
  const archives = readdirSync(folder)
    .filter((name) => /^graftlet-a.*\.tar$/.test(name))
    .map((name) => ({ path: join(folder, name), made: statSync(join(folder, name)).mtimeMs }))
    .toSorted((a, b) => b.made - a.made);
  for (const { path } of archives.slice(kept)) rmSync(path, { force: true });
}
