import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { must } from "../../test/harness/processes.ts";
import type { Architecture } from "../../test/harness/image.ts";
import { entriesOf } from "./archive.ts";
import { checkIntegrity } from "./digests.ts";
import { root } from "./source.ts";

/** How npm's packages of Node call an architecture. */
export const cpus: Readonly<Record<Architecture, string>> = { amd64: "x64", arm64: "arm64" };

/** Node as package-lock.json pins it. */
export interface NodeProgram {
  readonly version: string;
  readonly program: Buffer;
  readonly license: Buffer;
}

/** A package of package-lock.json. */
export interface LockedPackage {
  readonly version: string;
  readonly integrity: string;
}

/** The locked package of Node for an architecture. @throws when the lock file has none. */
export function lockedNode(lockFile: string, architecture: Architecture): LockedPackage {
  const { packages } = JSON.parse(lockFile) as { readonly packages: Readonly<Record<string, LockedPackage>> };
  const name = `node-linux-${cpus[architecture]}`;
  const locked = packages[`node_modules/${name}`];
  if (!locked) throw new Error(`package-lock.json has no ${name}: add it to optionalDependencies of package.json`);
  return locked;
}

/** Fetches Node for an architecture from npm's registry, or its cache, and holds it to the integrity that package-lock.json has. */
export async function fetchNode(architecture: Architecture): Promise<NodeProgram> {
  const { version, integrity } = lockedNode(readFileSync(join(root, "package-lock.json"), "utf8"), architecture);
  const name = `node-linux-${cpus[architecture]}@${version}`;
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-node-"));
  try {
    const pack = [
      "npm",
      "pack",
      "--json",
      "--prefer-offline",
      "--loglevel=error",
      `--pack-destination=${scratch}`,
      name,
    ];
    const [packed] = JSON.parse(await must(pack, { cwd: scratch, timeoutMs: 300_000 })) as { filename: string }[];
    const tarball = readFileSync(join(scratch, packed?.filename ?? ""));
    checkIntegrity(tarball, integrity, name);
    const entries = new Map((await entriesOf(gunzipSync(tarball))).map(({ header, data }) => [header.name, data]));
    const program = entries.get("package/bin/node");
    const license = entries.get("package/LICENSE");
    if (!program || !license) throw new Error(`${name} has no bin/node or no LICENSE`);
    return { version, program, license };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
