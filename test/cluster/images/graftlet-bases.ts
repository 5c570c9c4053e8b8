import { cpSync, mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import { shell } from "./catalog.ts";
import { createRootFs } from "./rootfs.ts";
import type { Tools } from "../../harness/tools.ts";

const project = join(import.meta.dirname, "..", "..", "..");

/** The npm that the build runs with; any that reads package-lock.json would do. A release's list of packages is this one's. */
export const npm = "npm@11.19.1";

/** Archives of images' files: what graftlet's image stands on, and what it is built in. */
export interface GraftletBases {
  readonly base: string;
  readonly build: string;
}

/** What has to be in the environment of the one that builds: `NAME=VALUE …`. */
export const buildEnvironment =
  "PATH=/usr/sbin:/usr/bin:/sbin:/bin npm_config_cache=/npm/cache npm_config_offline=true";

/**
 * Makes the images that stand in for the Dockerfile's public ones where no registry is to be had, as tar archives of their files:
 * `base` of Debian's packages (what Node loads, nsenter, and CA certificates), and `build` with Node, npm, a shell, and a cache that holds all that
 * package-lock.json pins, so that the build needs no network. npm's registry is asked once per version.
 * @param folder for the archives, empty.
 */
export async function packGraftletBases(folder: string, tools: Tools): Promise<GraftletBases> {
  const base = createRootFs(join(folder, "base"));
  await base.program(process.execPath);
  await must(["rm", join(base.folder, "usr/bin/node")]);
  await base.program("/usr/bin/nsenter");
  base.directory("/tmp", 0o1777);
  base.file("/etc/passwd", "root:x:0:0:root:/root:/none\nnonroot:x:65532:65532:nonroot:/nonexistent:/none\n");
  base.file("/etc/group", "root:x:0:\nnonroot:x:65532:\n");
  copyCertificates(base.folder);
  await base.pack(join(folder, "base.tar"));

  const build = createRootFs(join(folder, "build"));
  await shell.fill(build, tools);
  copyCertificates(build.folder);
  await build.program(process.execPath, "/usr/bin/node");
  await fetchPackages(join(build.folder, "npm"), folder);
  build.file("/usr/bin/npm", '#!/bin/sh\nexec node /npm/package/bin/npm-cli.js "$@"\n', 0o755);
  await build.pack(join(folder, "build.tar"));
  return { base: join(folder, "base.tar"), build: join(folder, "build.tar") };
}

function copyCertificates(root: string): void {
  mkdirSync(join(root, "etc/ssl/certs"), { recursive: true });
  cpSync("/etc/ssl/certs/ca-certificates.crt", join(root, "etc/ssl/certs/ca-certificates.crt"), { dereference: true });
}

/** Puts npm itself into `into`, and a cache of what both architectures' installs take. */
async function fetchPackages(into: string, scratch: string): Promise<void> {
  const kept = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "npm");
  const within = { cwd: join(scratch, "project"), timeoutMs: 600_000 };
  for (const dir of [into, kept, within.cwd]) mkdirSync(dir, { recursive: true });
  for (const file of [".npmrc", "package.json", "package-lock.json"])
    cpSync(join(project, file), join(within.cwd, file));
  const ask = ["npm", "--loglevel=error", "--prefer-offline", `--cache=${kept}`];
  const [packed] = JSON.parse(await must([...ask, "pack", "--json", npm], within)) as { readonly filename: string }[];
  await must(["tar", "-C", into, "-xzf", packed?.filename ?? npm], within);
  for (const cpu of ["x64", "arm64"]) await must([...ask, "ci", "--os=linux", "--libc=glibc", `--cpu=${cpu}`], within);
  cpSync(kept, join(into, "cache"), { recursive: true });
}
