import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Architecture } from "../../test/harness/image.ts";
import { must } from "../../test/harness/processes.ts";
import { gzipped } from "./archive.ts";
import type { NodeProgram } from "./node-package.ts";
import { root, type Source } from "./source.ts";
import { tarballOf } from "./tarball.ts";

/** Builds dist/graftlet.mjs, and packs it for each architecture. @returns the tarballs by name. */
export async function makeTarballs(
  source: Source,
  nodes: ReadonlyMap<Architecture, NodeProgram>,
): Promise<Record<string, Buffer>> {
  await must([process.execPath, join(root, "tools", "build.ts")], { timeoutMs: 300_000 });
  const built = {
    program: readFileSync(join(root, "dist", "graftlet.mjs")),
    notices: readFileSync(join(root, "dist", "THIRD-PARTY-NOTICES.txt")),
    license: readFileSync(join(root, "LICENSE")),
  };
  const packed = [...nodes].map(async ([architecture, node]) => {
    const folder = `graftlet-${source.version}-linux-${architecture}`;
    return [`${folder}.tar.gz`, await gzipped(await tarballOf(folder, built, node, source.date))] as const;
  });
  return Object.fromEntries(await Promise.all(packed));
}
