import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { Architecture } from "../../test/harness/image.ts";
import { entriesOf, gzipped, settledTar } from "./archive.ts";
import { sha256 } from "./digests.ts";
import type { NodeProgram } from "./node-package.ts";
import { type Descriptor, media, type OciLayout } from "./oci.ts";
import { isoDate, repository, root, type Source } from "./source.ts";

/** What an image is run with: the rest of what Docker writes down is of its build. */
const settings = new Set(["User", "Env", "Entrypoint", "Cmd", "WorkingDir"]);

interface DockerConfig {
  readonly architecture: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/** An image's architecture, and an archive of `docker save` with it. */
export interface BuiltImage {
  readonly architecture: Architecture;
  readonly archive: string;
  /** The Node that it must have. */
  readonly node: NodeProgram;
}

/** Adds the images of all architectures to a layout, with an index. The same commit and bases give the same digest: what the Dockerfile adds
 *  has the commit's date, the bases' layers stay as they are, and nothing tells of the build. @returns the index. */
export async function addIndex(layout: OciLayout, images: readonly BuiltImage[], source: Source): Promise<Descriptor> {
  const manifests: Descriptor[] = [];
  for (const image of images) manifests.push(await addImage(layout, image, source));
  const annotations = labelsOf(source);
  return layout.add(media.index, { schemaVersion: 2, mediaType: media.index, manifests, annotations });
}

async function addImage(layout: OciLayout, image: BuiltImage, source: Source): Promise<Descriptor> {
  const { config, layers } = await readArchive(image.archive);
  if (config.architecture !== image.architecture)
    throw new Error(`${image.archive} is an image for ${config.architecture}: build one for ${image.architecture}`);
  await checkNode(layers.at(-1) ?? Buffer.alloc(0), image);
  const bases = layers.length - ownLayers(readFileSync(join(root, "Dockerfile"), "utf8"));
  const settled = await Promise.all(
    layers.map(async (layer, index) => (index < bases ? layer : settledTar(layer, source.date))),
  );
  const packed = await Promise.all(settled.map(async (layer) => layout.add(media.layer, await gzipped(layer))));
  const kept = Object.entries(config.config).filter(([name, value]) => settings.has(name) && value !== null);
  const described = layout.add(media.config, {
    created: isoDate(source.date),
    architecture: image.architecture,
    os: "linux",
    config: { ...Object.fromEntries<unknown>(kept), Labels: labelsOf(source) },
    rootfs: { type: "layers", diff_ids: settled.map((layer) => `sha256:${sha256(layer)}`) },
  });
  const manifest = { schemaVersion: 2, mediaType: media.manifest, config: described, layers: packed };
  return {
    ...layout.add(media.manifest, manifest),
    platform: { os: "linux", architecture: image.architecture },
  };
}

/** How many layers a Dockerfile puts on its last base: one for each COPY, ADD and RUN. Pure. */
export function ownLayers(dockerfile: string): number {
  const lastStage = dockerfile.split(/^FROM /m).at(-1) ?? "";
  return lastStage.match(/^(COPY|ADD|RUN) /gm)?.length ?? 0;
}

/** An archive of `docker save`: layers as tar archives. Newer Docker Engines write them compressed.
 *  @see https://github.com/moby/moby/blob/master/image/spec/spec.md */
async function readArchive(archive: string): Promise<{ config: DockerConfig; layers: readonly Buffer[] }> {
  const files = new Map((await entriesOf(readFileSync(archive))).map(({ header, data }) => [header.name, data]));
  const read = (name: string): Buffer => {
    const data = files.get(name);
    if (!data) throw new Error(`${archive} has no ${name}: make it with docker save`);
    return data;
  };
  const [image] = JSON.parse(read("manifest.json").toString()) as { Config: string; Layers: string[] }[];
  if (!image) throw new Error(`${archive} has no image in it: make it with docker save`);
  const layers = image.Layers.map((name) => {
    const layer = read(name);
    return layer.readUInt16BE(0) === 0x1f8b ? gunzipSync(layer) : layer;
  });
  return { config: JSON.parse(read(image.Config).toString()) as DockerConfig, layers };
}

/** Holds an image's Node to that of the lock file. @param layer its last. */
async function checkNode(layer: Buffer, { archive, node }: BuiltImage): Promise<void> {
  const found = (await entriesOf(layer)).find(
    ({ header }) => header.name.replace(/^\.?\//, "") === "usr/local/bin/node",
  );
  if (!found?.data.equals(node.program))
    throw new Error(`${archive} does not have the Node ${node.version} of package-lock.json: build the image anew`);
}

/** @see https://github.com/opencontainers/image-spec/blob/main/annotations.md */
function labelsOf({ version, revision, date }: Source): Readonly<Record<string, string>> {
  const prefix = "org.opencontainers.image";
  return {
    [`${prefix}.created`]: isoDate(date),
    [`${prefix}.licenses`]: "Apache-2.0",
    [`${prefix}.revision`]: revision,
    [`${prefix}.source`]: repository,
    [`${prefix}.title`]: "graftlet",
    [`${prefix}.version`]: version,
  };
}
