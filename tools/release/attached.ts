import type { Registry } from "./registry.ts";
import { addArtifact, media, type OciLayout } from "./oci.ts";
import { envelopeOf, signatureOf, type SigningKey, signingPayload } from "./signing.ts";
import type { Statement } from "./statements.ts";

/** Where cosign looks for the signature or the attestations of what has this digest: a tag beside it. */
export function attachedTag(digest: string, kind: "sig" | "att"): string {
  return `${digest.replace(":", "-")}.${kind}`;
}

/** Names of annotations. @see https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md */
export const annotations = { signature: "dev.cosignproject.cosign/signature", predicate: "predicateType" } as const;

/** What is signed, and with what. */
export interface Signing {
  readonly layout: OciLayout;
  readonly registry: Registry;
  readonly key: SigningKey;
}

/** Signs what lies at a digest. @param reference without tag and digest. */
export async function attachSignature(
  { layout, registry, key }: Signing,
  reference: string,
  digest: string,
): Promise<void> {
  const payload = Buffer.from(signingPayload(reference, digest));
  const layer = layout.add(media.signature, payload);
  const signed = { ...layer, annotations: { [annotations.signature]: signatureOf(payload, key) } };
  const tag = attachedTag(digest, "sig");
  layout.name(addArtifact(layout, [signed]), tag);
  await registry.push(layout.folder, tag, `${reference}:${tag}`);
}

/** Attaches signed statements to what lies at a digest. @param reference without tag and digest. */
export async function attachStatements(
  { layout, registry, key }: Signing,
  reference: string,
  digest: string,
  statements: readonly Statement[],
): Promise<void> {
  const layers = statements.map((statement) => ({
    ...layout.add(media.envelope, envelopeOf(statement, key)),
    annotations: { [annotations.signature]: "", [annotations.predicate]: statement.predicateType },
  }));
  const tag = attachedTag(digest, "att");
  layout.name(addArtifact(layout, layers), tag);
  await registry.push(layout.folder, tag, `${reference}:${tag}`);
}
