import { createHash } from "node:crypto";
import { copyFileSync, createReadStream, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { must } from "../../harness/processes.ts";

/** A blob of the store: its digest (`sha256:…`) and size in bytes. */
export interface Blob {
  readonly digest: string;
  readonly size: number;
}

/** What an image says about running it. @see https://github.com/opencontainers/image-spec/blob/main/config.md */
export interface ImageConfig {
  readonly Entrypoint?: readonly string[];
  readonly Cmd?: readonly string[];
  readonly Env?: readonly string[];
  readonly User?: string;
  readonly WorkingDir?: string;
  readonly StopSignal?: string;
  readonly ExposedPorts?: Readonly<Record<string, object>>;
}

/** A folder in the layout of the distribution registry's filesystem driver, which serves it as it is. */
export interface RegistryStore {
  /** Moves a finished tar archive into the store as a layer. */
  addLayer(tarFile: string): Promise<Blob>;
  /** Stores an image as `docker save` wrote it, under `name:tag`. */
  addArchive(reference: ImageReference, archive: string): Promise<void>;
  /** Stores an image of these layers under `name:tag`, e.g. `e2e-test-images/busybox` and `1.37.0-1`. */
  addImage(reference: ImageReference, layers: readonly Blob[], config: ImageConfig): void;
}

/** Where a registry serves an image. */
export interface ImageReference {
  readonly name: string;
  readonly tags: readonly string[];
}

/** @see https://github.com/distribution/distribution/blob/v2.8.2/registry/storage/paths.go for the layout */
export function openRegistryStore(folder: string): RegistryStore {
  const root = join(folder, "docker", "registry", "v2");
  const blobFile = (digest: string): string =>
    join(root, "blobs", "sha256", digest.slice(7, 9), digest.slice(7), "data");
  const addBlob = (content: string): Blob => {
    const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
    write(blobFile(digest), content);
    return { digest, size: Buffer.byteLength(content) };
  };
  const link = (path: string, digest: string): void => write(join(path, "link"), digest);
  const addLayer: RegistryStore["addLayer"] = async (tarFile) => {
    const hash = createHash("sha256");
    let size = 0;
    await pipeline(createReadStream(tarFile), async (chunks: AsyncIterable<Buffer>) => {
      for await (const chunk of chunks) {
        hash.update(chunk);
        size += chunk.length;
      }
    });
    const digest = `sha256:${hash.digest("hex")}`;
    mkdirSync(dirname(blobFile(digest)), { recursive: true });
    moveFile(tarFile, blobFile(digest));
    return { digest, size };
  };
  const addManifest = ({ name, tags }: ImageReference, layers: readonly Blob[], config: string): void => {
    const blob = addBlob(config);
    const manifest = addBlob(JSON.stringify(imageManifest(blob, layers)));
    const repository = join(root, "repositories", name);
    for (const { digest } of [blob, ...layers]) link(join(repository, "_layers", "sha256", digest.slice(7)), digest);
    link(join(repository, "_manifests", "revisions", "sha256", manifest.digest.slice(7)), manifest.digest);
    for (const tag of tags) {
      link(join(repository, "_manifests", "tags", tag, "current"), manifest.digest);
      link(join(repository, "_manifests", "tags", tag, "index", "sha256", manifest.digest.slice(7)), manifest.digest);
    }
  };
  return {
    addLayer,
    async addArchive(reference, archive) {
      await using content = await mkdtempDisposable(join(tmpdir(), "graftlet-archive-"));
      await must(["tar", "-C", content.path, "-xf", archive], { timeoutMs: 300_000 });
      const [image] = JSON.parse(readFileSync(join(content.path, "manifest.json"), "utf8")) as readonly SavedImage[];
      if (!image) throw new Error(`there is no image in ${archive}`);
      const layers: Blob[] = [];
      for (const layer of image.Layers) layers.push(await addLayer(join(content.path, layer)));
      addManifest(reference, layers, readFileSync(join(content.path, image.Config), "utf8"));
    },
    addImage(reference, layers, config) {
      addManifest(reference, layers, JSON.stringify(imageConfig(layers, config)));
    },
  };
}

/** An image in the manifest.json of `docker save`. @see https://github.com/moby/docker-image-spec/blob/main/v1.2.md */
interface SavedImage {
  readonly Config: string;
  readonly Layers: readonly string[];
}

/** What an image's config blob says. @param layers plain tar archives. */
export function imageConfig(layers: readonly Blob[], config: ImageConfig): object {
  return {
    architecture: process.arch === "arm64" ? "arm64" : "amd64",
    os: "linux",
    created: "1970-01-01T00:00:00Z",
    config,
    rootfs: { type: "layers", diff_ids: layers.map((layer) => layer.digest) },
    history: layers.map(() => ({ created: "1970-01-01T00:00:00Z" })),
  };
}

/** A manifest of layers that are plain tar: on one machine compressing costs more than it saves. */
export function imageManifest(config: Blob, layers: readonly Blob[]): object {
  return {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...config },
    layers: layers.map((layer) => ({ mediaType: "application/vnd.oci.image.layer.v1.tar", ...layer })),
  };
}

function moveFile(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    copyFileSync(from, to);
  }
}

function write(path: string, content: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}
