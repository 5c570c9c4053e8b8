import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Published } from "./making.ts";
import type { Statement } from "./statements.ts";

/** What cosign attests: a type by its own name, and a file with the predicate. */
interface Predicate {
  readonly type: "slsaprovenance1" | "spdxjson";
  readonly file: string;
}

/** The commands by which cosign signs a release with keys of the moment, for the identity that its environment has. Pure.
 *  @param folder of the release's files.
 *  @see https://github.com/sigstore/cosign/blob/main/doc/cosign.md */
export function keylessCommands(published: Published, predicates: readonly Predicate[], folder: string): string[][] {
  const image = `${published.image}@${published.imageDigest}`;
  const sums = join(folder, "SHA256SUMS");
  return [
    ["cosign", "sign", "--yes", image],
    ["cosign", "sign", "--yes", `${published.chart}@${published.chartDigest}`],
    ...predicates.map(({ type, file }) => [
      "cosign",
      "attest",
      "--yes",
      `--type=${type}`,
      `--predicate=${file}`,
      image,
    ]),
    ["cosign", "sign-blob", "--yes", `--bundle=${sums}.sigstore.json`, sums],
  ];
}

/** The predicates of a release: that of its provenance, which is written beside it, and its SBOMs. @param folder of its files. */
export function predicatesIn(folder: string, { version, files }: Published): Predicate[] {
  const provenance = readFileSync(join(folder, `graftlet-${version}.provenance.json`), "utf8");
  const file = join(folder, "predicate.json");
  writeFileSync(file, JSON.stringify((JSON.parse(provenance) as Statement).predicate));
  const sboms = files.filter((name) => name.endsWith(".spdx.json"));
  return [
    { type: "slsaprovenance1", file },
    ...sboms.map((name) => ({ type: "spdxjson", file: join(folder, name) }) as const),
  ];
}
