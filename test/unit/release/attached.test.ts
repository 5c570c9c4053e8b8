import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { attachSignature, attachStatements } from "../../../tools/release/attached.ts";
import { createLayout, type Descriptor } from "../../../tools/release/oci.ts";
import type { Registry } from "../../../tools/release/registry.ts";
import { newKey } from "../../../tools/release/signing.ts";
import { provenanceOf } from "../../../tools/release/statements.ts";
import { verifySigned } from "../../../tools/release/verify.ts";

const digestOf = (letter: string) => `sha256:${letter.repeat(64)}`;
const published = {
  version: "0.1.0",
  image: "r.test/graftlet",
  imageDigest: digestOf("a"),
  chart: "r.test/charts/graftlet",
  chartDigest: digestOf("b"),
  files: [],
};
const source = { version: "0.1.0", revision: "c".repeat(40), date: 0, notes: "" };
const provenanceFor = (letter: string) =>
  provenanceOf([{ name: "r.test/graftlet", sha256: letter.repeat(64) }], source, "https://localhost/test");

/** A registry in memory, which keeps layouts' folders for what was pushed. */
function memoryRegistry(): Registry {
  const pushed = new Map<string, { readonly folder: string; readonly manifest: string }>();
  const blobIn = (folder: string, digest: string) => join(folder, "blobs", digest.replace(":", "/"));
  return {
    async push(folder, reference, target) {
      const { manifests } = JSON.parse(readFileSync(join(folder, "index.json"), "utf8")) as { manifests: Descriptor[] };
      const named = manifests.find(({ annotations }) => Object.values(annotations ?? {}).includes(reference));
      assert.ok(named, reference);
      pushed.set(target, { folder, manifest: blobIn(folder, named.digest) });
    },
    pushChart: () => Promise.reject(new Error("no charts here")),
    manifest: () => Promise.reject(new Error("nobody asks")),
    async fetch(reference, folder) {
      const found = pushed.get(reference);
      if (!found) throw new Error(`${reference}: manifest unknown`);
      copyFileSync(found.manifest, join(folder, "manifest.json"));
      const { layers } = JSON.parse(readFileSync(found.manifest, "utf8")) as { layers: Descriptor[] };
      for (const { digest } of layers) copyFileSync(blobIn(found.folder, digest), join(folder, digest.slice(7)));
    },
  };
}

function signing(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-attached-test-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return { layout: createLayout(folder), registry: memoryRegistry(), key: newKey() };
}

test("finds valid signatures of image and chart, and attestations of the image", async (t) => {
  const by = signing(t);
  await attachSignature(by, published.image, published.imageDigest);
  await attachSignature(by, published.chart, published.chartDigest);
  await attachStatements(by, published.image, published.imageDigest, [provenanceFor("a")]);
  assert.deepEqual(await verifySigned(by.registry, published, by.key.publicPem), ["https://slsa.dev/provenance/v1"]);
  const other = verifySigned(by.registry, published, newKey().publicPem);
  await assert.rejects(other, /^Error: r\.test\/graftlet@sha256:a+ is not signed by the release's key$/);
});

test("rejects the signature of another image", async (t) => {
  const by = signing(t);
  await attachSignature(by, published.image, digestOf("d"));
  await by.registry.push(
    by.layout.folder,
    `sha256-${"d".repeat(64)}.sig`,
    `${published.image}:sha256-${"a".repeat(64)}.sig`,
  );
  await assert.rejects(verifySigned(by.registry, published, by.key.publicPem), /is not signed by the release's key/);
});

test("rejects an unsigned chart, and an attestation about another subject", async (t) => {
  const by = signing(t);
  await attachSignature(by, published.image, published.imageDigest);
  await assert.rejects(verifySigned(by.registry, published, by.key.publicPem), /manifest unknown/);
  await attachSignature(by, published.chart, published.chartDigest);
  await attachStatements(by, published.image, published.imageDigest, [provenanceFor("e")]);
  await assert.rejects(
    verifySigned(by.registry, published, by.key.publicPem),
    /^Error: a statement attached to r\.test\/graftlet is of something else$/,
  );
});
