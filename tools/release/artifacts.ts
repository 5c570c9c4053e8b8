import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Architecture } from "../../test/harness/image.ts";
import { must } from "../../test/harness/processes.ts";
import { gzipped } from "./archive.ts";
import type { NodeProgram } from "./node-package.ts";
import { root, type Source } from "./source.ts";
import { type Built, tarballOf } from "./tarball.ts";

/** Builds the program, and packs it for each architecture. @returns the tarballs by name. */
export async function makeTarballs(
  source: Source,
  nodes: ReadonlyMap<Architecture, NodeProgram>,
): Promise<Record<string, Buffer>> {
  const built = await build();
  const packed = [...nodes].map(async ([architecture, node]) => {
    const folder = `graftlet-${source.version}-linux-${architecture}`;
    return [`${folder}.tar.gz`, await gzipped(await tarballOf(folder, built, node, source.date))] as const;
  });
  return Object.fromEntries(await Promise.all(packed));
}

/** A build empties its folder, so that it has one of its own: the release itself may lie in dist. */
async function build(): Promise<Built> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-build-"));
  try {
    const program = [join(root, "tools", "build.ts"), join(root, "src", "main.ts"), folder];
    await must([process.execPath, ...program], { timeoutMs: 300_000 });
    return {
      program: readFileSync(join(folder, "graftlet.mjs")),
      notices: readFileSync(join(folder, "THIRD-PARTY-NOTICES.txt")),
      license: readFileSync(join(root, "LICENSE")),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
