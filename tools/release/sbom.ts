import { npm } from "../../test/cluster/images/graftlet-bases.ts";
import type { Architecture } from "../../test/harness/image.ts";
import { must } from "../../test/harness/processes.ts";
import { cpus } from "./node-package.ts";
import { isoDate, repository, root, type Source } from "./source.ts";

/** The part of SPDX's document that is worked with. @see https://spdx.github.io/spdx-spec/v2.3/ */
export interface Sbom {
  readonly spdxVersion: string;
  readonly name: string;
  readonly documentNamespace: string;
  readonly creationInfo: { readonly created: string; readonly creators: readonly string[] };
  readonly packages: readonly SbomPackage[];
  readonly relationships: readonly { readonly spdxElementId: string; readonly relatedSpdxElement: string }[];
}

/** A package in it. */
export interface SbomPackage {
  readonly SPDXID: string;
  readonly name: string;
  readonly versionInfo: string;
  /** Its folder in the lock file. */
  readonly packageFileName: string;
  readonly checksums?: readonly { readonly algorithm: string; readonly checksumValue: string }[];
}

/** What npm says of package-lock.json, packages for development as well: its `--omit=dev` leaves out what is for both. It is the npm
 *  that the image is built with: older ones lack the command. */
export async function npmSbom(): Promise<Sbom> {
  const newest = ["npm", "exec", "--yes", "--prefer-offline", "--loglevel=error", `--package=${npm}`, "--", "npm"];
  const ask = ["sbom", "--sbom-format=spdx", "--sbom-type=application", "--package-lock-only"];
  return JSON.parse(await must([...newest, ...ask], { cwd: root, timeoutMs: 300_000 })) as Sbom;
}

/** The part of package-lock.json that says what a package is for; by its folder. */
export interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
}

/** The SBOM of what is shipped for an architecture: no package that is for development alone, and of Node the one for it. Nothing
 *  differs from one run to the next. Pure. @param sbom npm's. */
export function sbomFor(architecture: Architecture, sbom: Sbom, lock: Lock, source: Source): Sbom {
  const isShipped = ({ name, packageFileName }: SbomPackage): boolean =>
    name.startsWith("node-linux-")
      ? name === `node-linux-${cpus[architecture]}`
      : lock.packages[packageFileName]?.dev !== true;
  const packages = sbom.packages.filter(isShipped);
  const shipped = new Set([...packages.map(({ SPDXID }) => SPDXID), "SPDXRef-DOCUMENT"]);
  const name = `graftlet-${source.version}-linux-${architecture}`;
  return {
    ...sbom,
    name,
    documentNamespace: `${repository}/spdx/${name}-${source.revision}`,
    creationInfo: { ...sbom.creationInfo, created: isoDate(source.date) },
    packages,
    relationships: sbom.relationships.filter(
      ({ spdxElementId, relatedSpdxElement }) => shipped.has(spdxElementId) && shipped.has(relatedSpdxElement),
    ),
  };
}
