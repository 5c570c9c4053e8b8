import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { annotations, attachedTag } from "./attached.ts";
import type { Published } from "./making.ts";
import type { Registry } from "./registry.ts";
import { type Envelope, isSigned, signingPayload, statementIn } from "./signing.ts";
import type { Statement } from "./statements.ts";

interface Layer {
  readonly digest: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Checks what a registry has of a release against a key, as cosign does. @param publicPem PEM.
 *  @returns the types of the statements about the image.
 *  @throws one sentence for a signature that is not right, or is of something else. */
export async function verifySigned(registry: Registry, published: Published, publicPem: string): Promise<string[]> {
  const { image, imageDigest, chart, chartDigest } = published;
  await verifySignature(registry, image, imageDigest, publicPem);
  await verifySignature(registry, chart, chartDigest, publicPem);
  const layers = await attachedTo(registry, image, attachedTag(imageDigest, "att"));
  return layers.map(({ content }) => {
    const statement = statementIn(JSON.parse(content) as Envelope, publicPem) as Statement;
    if (!statement.subject.some(({ digest }) => `sha256:${digest.sha256}` === imageDigest))
      throw new Error(`a statement attached to ${image} is of something else`);
    return statement.predicateType;
  });
}

async function verifySignature(registry: Registry, name: string, digest: string, publicPem: string): Promise<void> {
  const [layer] = await attachedTo(registry, name, attachedTag(digest, "sig"));
  const signature = layer?.annotations?.[annotations.signature] ?? "";
  if (layer?.content !== signingPayload(name, digest) || !isSigned(layer.content, signature, publicPem))
    throw new Error(`${name}@${digest} is not signed by the release's key`);
}

async function attachedTo(registry: Registry, name: string, tag: string): Promise<(Layer & { content: string })[]> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-attached-"));
  try {
    await registry.fetch(`${name}:${tag}`, folder);
    const manifest = readFileSync(join(folder, "manifest.json"), "utf8");
    const { layers } = JSON.parse(manifest) as { readonly layers: readonly Layer[] };
    const contentOf = ({ digest }: Layer): string => readFileSync(join(folder, digest.replace("sha256:", "")), "utf8");
    return layers.map((layer) => ({ ...layer, content: contentOf(layer) }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
