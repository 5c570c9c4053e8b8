import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import { buildProgram, type Tools } from "../../harness/tools.ts";
import { programsIn, testKit } from "../tools/kits.ts";
import { catalog, type ImageRecipe, type LayerRecipe } from "./catalog.ts";
import { type Blob, openRegistryStore } from "./registry-store.ts";
import { createRootFs } from "./rootfs.ts";

type Say = (line: string) => void;

/**
 * Makes sure that the images are built, and returns the folder that a registry serves. Once per
 * machine and version: the cache is keyed by the recipes, the programs in them and the Debian packages.
 */
export async function buildImages(
  tools: Tools,
  say: Say,
  images: readonly ImageRecipe[] = testKit.images,
): Promise<string> {
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "images");
  const store = join(cache, await cacheKey(tools, images));
  if (existsSync(store)) return store;
  say("building the images: once per machine, about half a minute");
  mkdirSync(cache, { recursive: true });
  const partial = mkdtempSync(`${store}.`);
  mkdirSync(join(partial, "store"));
  try {
    await fillStore(join(partial, "store"), join(partial, "work"), tools, images);
    renameIfFirst(join(partial, "store"), store);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return store;
}

/** Adds an image of the catalog to a folder that registries serve, also while they do, with the program in it built: once per folder. */
export async function addImage(name: string, store: string, say: Say): Promise<void> {
  const image = catalog.find((known) => known.name === name);
  if (!image) throw new Error(`there is no image ${name} in the catalog`);
  const built = new Map<string, string>();
  for (const program of programsIn(image)) built.set(program.name, await buildProgram(program, say));
  const key = createHash("sha256")
    .update(JSON.stringify([name, ...built]))
    .digest("hex");
  const added = join(store, `added-${key.slice(0, 16)}`);
  if (existsSync(added)) return;
  const partial = mkdtempSync(`${store}.`);
  const path = (program: string): string => {
    const found = built.get(program);
    if (!found) throw new Error(`the image ${name} has no program ${program}`);
    return found;
  };
  try {
    await fillStore(store, partial, { path }, [image]);
    writeFileSync(added, name);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

async function fillStore(folder: string, work: string, tools: Tools, images: readonly ImageRecipe[]): Promise<void> {
  const store = openRegistryStore(folder);
  const built = new Map<LayerRecipe, Blob>();
  for (const image of images) {
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

async function cacheKey(tools: Tools, images: readonly ImageRecipe[]): Promise<string> {
  const hash = createHash("sha256");
  for (const source of [
    "catalog.ts",
    "debian.ts",
    "storage.ts",
    "nfs.ts",
    "postgres.ts",
    "private-pause.ts",
    "rootfs.ts",
    "registry-store.ts",
    "pause/main.go",
    "nonewprivs/main.go",
  ])
    hash.update(readFileSync(join(import.meta.dirname, source)));
  // The cache folder of the tools is named by their versions.
  for (const image of images) {
    hash.update(image.name);
    for (const { name } of programsIn(image)) hash.update(tools.path(name));
  }
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
      "util-linux",
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
