import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { checksumsOf, sha256 } from "./digests.ts";
import type { Files, Making, Published } from "./making.ts";
import type { Sbom } from "./sbom.ts";
import { signatureOf } from "./signing.ts";
import type { Source } from "./source.ts";
import type { Statement, Subject } from "./statements.ts";

/** What a provenance is of: files, image and chart. Pure. */
export function subjectsOf(
  files: Files,
  { image, imageDigest, chart, chartDigest }: Omit<Published, "files">,
): Subject[] {
  return [
    ...Object.entries(files).map(([name, content]) => ({ name, sha256: sha256(content) })),
    { name: image, sha256: imageDigest.replace("sha256:", "") },
    { name: chart, sha256: chartDigest.replace("sha256:", "") },
  ];
}

/** SBOMs and provenance as files. Pure. */
export function jsonFiles({ version }: Source, sboms: readonly Sbom[], provenance: Statement): Files {
  const text = (content: object): string => `${JSON.stringify(content, undefined, 2)}\n`;
  return {
    ...Object.fromEntries(sboms.map((sbom) => [`${sbom.name}.spdx.json`, text(sbom)])),
    [`graftlet-${version}.provenance.json`]: text(provenance),
  };
}

/** Writes the files of a release, and what goes with them: checksums, notes, release.json; with a key a signature, and its other half. */
export function writeFiles({ folder, source, key }: Making, files: Files, published: Published): void {
  const sums = checksumsOf(files);
  const further = {
    SHA256SUMS: sums,
    "NOTES.md": source.notes,
    "release.json": JSON.stringify(published),
    ...(key && { "SHA256SUMS.sig": signatureOf(sums, key), "cosign.pub": key.publicPem }),
  };
  for (const [name, content] of Object.entries({ ...files, ...further })) writeFileSync(join(folder, name), content);
}
