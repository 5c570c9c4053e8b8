import { readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Architecture } from "../../test/harness/image.ts";
import { gzipped } from "./archive.ts";
import { makeTarballs } from "./artifacts.ts";
import { attachSignature, attachStatements, type Signing } from "./attached.ts";
import { chartOf } from "./chart.ts";
import { jsonFiles, subjectsOf, writeFiles } from "./files.ts";
import { addIndex, type BuiltImage } from "./image.ts";
import { architectures, type Files, type Making, type Published } from "./making.ts";
import { fetchNode, type NodeProgram } from "./node-package.ts";
import { createLayout, type OciLayout } from "./oci.ts";
import { type Lock, npmSbom, type Sbom, sbomFor } from "./sbom.ts";
import { root, type Source } from "./source.ts";
import { provenanceOf, sbomStatement, type Statement } from "./statements.ts";

/** Makes a release and pushes it: tarballs, image, chart, SBOMs, provenance, checksums, signatures. */
export async function publish(making: Making): Promise<Published> {
  const { source, places, folder, say } = making;
  rmSync(folder, { recursive: true, force: true });
  const layout = createLayout(join(folder, "oci"));
  say("Node of both architectures, held to package-lock.json");
  const nodes = new Map(await Promise.all(architectures.map(async (each) => [each, await fetchNode(each)] as const)));
  say("tarballs");
  const tarballs = await makeTarballs(source, nodes);
  say(`image ${places.image}:${source.version}`);
  const imageDigest = await pushImage(making, layout, nodes);
  say(`chart ${places.charts}/graftlet:${source.version}`);
  const chart = await pushChart(making, imageDigest);
  say("SBOMs, provenance, checksums, signatures");
  const sboms = await makeSboms(source);
  const names = {
    version: source.version,
    image: places.image,
    imageDigest,
    chart: chart.name,
    chartDigest: chart.digest,
  };
  const provenance = provenanceOf(subjectsOf({ ...tarballs, ...chart.file }, names), source, making.builder);
  const files = { ...tarballs, ...chart.file, ...jsonFiles(source, sboms, provenance) };
  const published = { ...names, files: Object.keys(files).toSorted() };
  writeFiles(making, files, published);
  if (making.key) await sign({ layout, registry: making.registry, key: making.key }, published, sboms, provenance);
  return published;
}

async function pushImage(
  { source, places, registry, archiveOf }: Making,
  layout: OciLayout,
  nodes: ReadonlyMap<Architecture, NodeProgram>,
): Promise<string> {
  const images: BuiltImage[] = [];
  for (const [architecture, node] of nodes) images.push({ architecture, archive: await archiveOf(architecture), node });
  const index = await addIndex(layout, images, source);
  layout.name(index, source.version);
  await registry.push(layout.folder, source.version, `${places.image}:${source.version}`);
  return index.digest;
}

/** A chart in a registry. */
interface PushedChart {
  /** Without tag. */
  readonly name: string;
  /** Of its manifest. */
  readonly digest: string;
  /** What was pushed. */
  readonly file: Files;
}

async function pushChart({ source, places, registry, folder }: Making, imageDigest: string): Promise<PushedChart> {
  const file = `graftlet-${source.version}.tgz`;
  const packed = await gzipped(await chartOf(places.image, imageDigest, source.date));
  writeFileSync(join(folder, file), packed);
  // helm writes the file's date into the manifest.
  utimesSync(join(folder, file), source.date, source.date);
  await registry.pushChart(join(folder, file), places.charts);
  const name = `${places.charts}/graftlet`;
  const { digest } = await registry.manifest(`${name}:${source.version}`);
  return { name, digest, file: { [file]: packed } };
}

async function makeSboms(source: Source): Promise<Sbom[]> {
  const sbom = await npmSbom();
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as Lock;
  return architectures.map((architecture) => sbomFor(architecture, sbom, lock, source));
}

async function sign(
  signing: Signing,
  { image, imageDigest, chart, chartDigest }: Published,
  sboms: readonly Sbom[],
  provenance: Statement,
): Promise<void> {
  await attachSignature(signing, image, imageDigest);
  await attachSignature(signing, chart, chartDigest);
  const subject = [{ name: image, sha256: imageDigest.replace("sha256:", "") }];
  const statements = [provenance, ...sboms.map((sbom) => sbomStatement(subject, sbom))];
  await attachStatements(signing, image, imageDigest, statements);
}
