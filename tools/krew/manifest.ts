import { readFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";

/** What of package.json is in the manifest. */
export interface Package {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly homepage: string;
}

const architectures = ["amd64", "arm64"] as const;

/** Name of a release's tarball, and of the folder in it, without `.tar.gz`. */
function tarballOf({ name, version }: Package, architecture: string): string {
  return `${name}-${version}-linux-${architecture}`;
}

/** The manifest by which krew installs a release as `kubectl graftlet`: the tarball's launcher, its Node and the one file. Pure.
 *  @param sums of a release: lines of sha256sum. @throws when that of a tarball is missing.
 *  @see https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/ */
export function krewManifest(from: Package, sums: string): object {
  const { name, version, description, homepage } = from;
  return {
    apiVersion: "krew.googlecontainertools.github.com/v1alpha2",
    kind: "Plugin",
    metadata: { name },
    spec: {
      version: `v${version}`,
      homepage,
      shortDescription: description,
      description:
        "Looks at nodes and their machines (doctor, status), takes nodes out (leave, remove), and runs them. See kubectl graftlet --help.\n",
      platforms: architectures.map((architecture) => {
        const tarball = tarballOf(from, architecture);
        return {
          selector: { matchLabels: { os: "linux", arch: architecture } },
          uri: `${homepage}/releases/download/v${version}/${tarball}.tar.gz`,
          sha256: sumOf(`${tarball}.tar.gz`, sums),
          files: [{ from: `${tarball}/*`, to: "." }],
          bin: name,
        };
      }),
    },
  };
}

function sumOf(file: string, sums: string): string {
  for (const line of sums.split("\n")) {
    const [sum = "", name] = line.trim().split(/\s+\*?/);
    if (name === file && /^[0-9a-f]{64}$/.test(sum)) return sum;
  }
  throw new Error(`there is no SHA-256 of ${file}: give the release's checksums`);
}

/** What package.json says. @throws when a field of the manifest is missing there */
export function ownPackage(): Package {
  const read: unknown = JSON.parse(readFileSync(join(import.meta.dirname, "..", "..", "package.json"), "utf8"));
  const fields = read as Partial<Package>;
  const text = (field: keyof Package): string => {
    const value = fields[field];
    if (typeof value !== "string" || value === "") throw new Error(`package.json has no ${field}`);
    return value;
  };
  return {
    name: text("name"),
    version: text("version"),
    description: text("description"),
    homepage: text("homepage"),
  };
}

if (import.meta.main) {
  const [file] = process.argv.slice(2);
  if (file === undefined) throw new Error("give the file of the release's checksums");
  process.stdout.write(stringify(krewManifest(ownPackage(), readFileSync(file, "utf8"))));
}
