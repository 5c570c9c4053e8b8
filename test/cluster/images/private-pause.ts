import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ImageRecipe, LayerRecipe } from "./catalog.ts";
import { type Blob, imageConfig, imageManifest } from "./registry-store.ts";
import { createRootFs, type RootFs } from "./rootfs.ts";

/** The image `pause:testing`, as the private registry in agnhost finds it in its own files. Its config differs from that of the sandboxes'
 *  image, which a test that removes it would take along.
 *  @see https://github.com/kubernetes/kubernetes/tree/v1.36.3/test/images/agnhost/fakeregistryserver for the layout */
export const privatePause = ({ layers, config }: Pick<ImageRecipe, "layers" | "config">): LayerRecipe => ({
  name: "private-pause",
  async fill(root, tools) {
    const scratch = mkdtempSync(join(tmpdir(), "graftlet-pause-"));
    try {
      const blobs: Blob[] = [];
      for (const layer of layers) {
        const inner = createRootFs(join(scratch, layer.name));
        await layer.fill(inner, tools);
        const archive = join(scratch, `${layer.name}.tar`);
        await inner.pack(archive);
        blobs.push(addTo(root, "blobs", readFileSync(archive)));
      }
      const own = { ...config, Env: [...(config.Env ?? []), "FROM=private"] };
      const described = addTo(root, "blobs", Buffer.from(JSON.stringify(imageConfig(blobs, own))));
      const manifest = addTo(root, "manifests", Buffer.from(JSON.stringify(imageManifest(described, blobs))));
      root.file("/var/registry/pause/manifests/testing", `${manifest.digest}\n`);
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  },
});

function addTo(root: RootFs, kind: "blobs" | "manifests", content: Buffer): Blob {
  const hash = createHash("sha256").update(content).digest("hex");
  root.file(`/var/registry/pause/${kind}/sha256/${hash.slice(0, 2)}/${hash}/data`, content);
  return { digest: `sha256:${hash}`, size: content.length };
}
