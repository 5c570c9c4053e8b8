import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import type { Tools } from "../../harness/tools.ts";
import { catalog, type LayerRecipe } from "./catalog.ts";
import { type Blob, openRegistryStore } from "./registry-store.ts";
import { createRootFs } from "./rootfs.ts";

/**
 * Makes sure that the images are built, and returns the folder that a registry serves. Once per
 * machine and version: the cache is keyed by the recipes, the programs in them and the Debian packages.
 */
export async function buildImages(tools: Tools, say: (line: string) => void): Promise<string> {
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "images");
  const store = join(cache, await cacheKey(tools));
  if (existsSync(store)) return store;
  say("building the test images: once per machine, about half a minute");
  const partial = `${store}.${process.pid}`;
  mkdirSync(partial, { recursive: true });
  try {
    await fillStore(join(partial, "store"), join(partial, "work"), tools);
    renameIfFirst(join(partial, "store"), store);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return store;
}

async function fillStore(folder: string, work: string, tools: Tools): Promise<void> {
  const store = openRegistryStore(folder);
  const built = new Map<LayerRecipe, Blob>();
  for (const image of catalog) {
    const layers: Blob[] = [];
    for (const recipe of image.layers) {
      const blob = built.get(recipe) ?? (await store.addLayer(await packLayer(recipe, join(work, recipe.name), tools)));
      built.set(recipe, blob);
      layers.push(blob);
    }
    store.addImage(image, layers, image.config);
  }
}

async function packLayer(recipe: LayerRecipe, folder: string, tools: Tools): Promise<string> {
  const root = createRootFs(folder);
  await recipe.fill(root, tools);
  await root.pack(`${folder}.tar`);
  return `${folder}.tar`;
}

async function cacheKey(tools: Tools): Promise<string> {
  const hash = createHash("sha256");
  for (const source of ["catalog.ts", "rootfs.ts", "registry-store.ts", "pause/main.go", "nonewprivs/main.go"])
    hash.update(readFileSync(join(import.meta.dirname, source)));
  // The cache folder of the tools is named by their versions.
  for (const program of ["agnhost", "coredns", "metrics-server"]) hash.update(tools.path(program));
  hash.update(
    await must([
      "dpkg-query",
      "-W",
      "-f",
      "${Package} ${Version}\n",
      "busybox-static",
      "bash",
      "curl",
      "bind9-dnsutils",
      "netcat-openbsd",
      "iproute2",
      "iperf",
    ]),
  );
  return hash.digest("hex").slice(0, 16);
}

/** Of two builds side by side the first stays: both have the same content. */
function renameIfFirst(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!existsSync(to)) throw error;
  }
}
