import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { sha256 } from "./digests.ts";

/** Media types. @see https://github.com/opencontainers/image-spec/blob/main/media-types.md */
export const media = {
  index: "application/vnd.oci.image.index.v1+json",
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar+gzip",
  signature: "application/vnd.dev.cosign.simplesigning.v1+json",
  envelope: "application/vnd.dsse.envelope.v1+json",
} as const;

/** What refers to a blob. @see https://github.com/opencontainers/image-spec/blob/main/descriptor.md */
export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly platform?: { readonly os: string; readonly architecture: string };
}

/** A folder of blobs in the layout that registries' clients push from. */
export interface OciLayout {
  readonly folder: string;
  add(mediaType: string, content: Buffer | object): Descriptor;
  /** Gives a manifest or an index a name in this folder. */
  name(descriptor: Descriptor, reference: string): void;
}

/** An empty layout in `folder`. @see https://github.com/opencontainers/image-spec/blob/main/image-layout.md */
export function createLayout(folder: string): OciLayout {
  const blobs = join(folder, "blobs", "sha256");
  mkdirSync(blobs, { recursive: true });
  writeFileSync(join(folder, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  const named: Descriptor[] = [];
  return {
    folder,
    add(mediaType, content) {
      const bytes = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
      const digest = sha256(bytes);
      writeFileSync(join(blobs, digest), bytes);
      return { mediaType, digest: `sha256:${digest}`, size: bytes.length };
    },
    name(descriptor, reference) {
      named.push({ ...descriptor, annotations: { "org.opencontainers.image.ref.name": reference } });
      writeFileSync(join(folder, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: named }));
    },
  };
}

/** Adds a manifest of layers that are no file systems, as cosign stores signatures and attestations. */
export function addArtifact(layout: OciLayout, layers: readonly Descriptor[]): Descriptor {
  const diffIds = layers.map(({ digest }) => digest);
  const config = layout.add(media.config, {
    architecture: "",
    os: "",
    config: {},
    rootfs: { type: "layers", diff_ids: diffIds },
  });
  return layout.add(media.manifest, { schemaVersion: 2, mediaType: media.manifest, config, layers });
}
