import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { fileEntry, tarOf } from "../../../tools/release/archive.ts";
import { addIndex } from "../../../tools/release/image.ts";
import { createLayout, type Descriptor } from "../../../tools/release/oci.ts";

const date = 1_795_572_282;
const source = { version: "0.1.0", revision: "c".repeat(40), date, notes: "" };
const node = { version: "26.10.0", program: Buffer.from("ELF"), license: Buffer.from("") };

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-release-image-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** The base's layer: other programs fill a tar archive up to 10 240 bytes, ours does not. */
async function base(): Promise<Buffer> {
  const tar = await tarOf([fileEntry("etc/passwd", "root", 0o644, 86_400)]);
  return Buffer.concat([tar, Buffer.alloc(10_240 - tar.length)]);
}

/** An archive as `docker save` makes it of a build at a time, seconds since the epoch. */
async function archiveIn(
  folder: string,
  built: number,
  { program = "ELF", pack = (layer: Buffer): Buffer => layer } = {},
): Promise<string> {
  const config = {
    architecture: "amd64",
    container: `built at ${built}`,
    config: { User: "65532:65532", Hostname: `host-${built}`, Entrypoint: ["/usr/local/bin/node"], Cmd: null },
    history: [{ created: built }],
  };
  const own = ["usr/lib/libatomic.so.1", "usr/bin/nsenter", "usr/local/bin/node"].map((name) =>
    tarOf([fileEntry(name, name.endsWith("node") ? program : "x", 0o755, built)]),
  );
  const layers = [await base(), ...(await Promise.all(own))].map(pack);
  const names = layers.map((_, index) => `${index}/layer.tar`);
  const archive = join(folder, `${built}.tar`);
  const entries = [
    fileEntry("config.json", JSON.stringify(config), 0o644, built),
    ...layers.map((layer, index) => fileEntry(names[index] ?? "", layer, 0o644, built)),
    fileEntry("manifest.json", JSON.stringify([{ Config: "config.json", Layers: names }]), 0o644, built),
  ];
  writeFileSync(archive, await tarOf(entries));
  return archive;
}

test("builds the same image at different times and with different Docker Engines, on an unchanged base", async (t) => {
  const folder = scratch(t);
  const layout = createLayout(join(folder, "oci"));
  const indexOf = async (archive: string) => addIndex(layout, [{ architecture: "amd64", archive, node }], source);
  const index = await indexOf(await archiveIn(folder, date - 60));
  assert.deepEqual(await indexOf(await archiveIn(folder, date + 60, { pack: gzipSync })), index);

  const bytes = ({ digest }: Descriptor) => readFileSync(join(folder, "oci", "blobs", digest.replace(":", "/")));
  const blob = <T>(descriptor: Descriptor) => JSON.parse(bytes(descriptor).toString()) as T;
  const [manifest] = blob<{ manifests: Descriptor[] }>(index).manifests;
  assert.deepEqual(manifest?.platform, { os: "linux", architecture: "amd64" });
  const { config, layers } = blob<{ config: Descriptor; layers: Descriptor[] }>(manifest);
  assert.deepEqual(gunzipSync(bytes(layers[0] ?? index)), await base());
  const { config: settings, ...rest } = blob<{ config: Record<string, unknown> }>(config);
  assert.deepEqual(Object.keys(settings), ["User", "Entrypoint", "Labels"]);
  assert.deepEqual(Object.keys(rest), ["created", "architecture", "os", "rootfs"]);
});

test("rejects an image of another architecture or with another Node.js", async (t) => {
  const folder = scratch(t);
  const layout = createLayout(join(folder, "oci"));
  const archive = await archiveIn(folder, date);
  await assert.rejects(
    addIndex(layout, [{ architecture: "arm64", archive, node }], source),
    /is an image for amd64: build one for arm64$/,
  );
  const other = await archiveIn(folder, date + 1, { program: "ELF, but another" });
  await assert.rejects(
    addIndex(layout, [{ architecture: "amd64", archive: other, node }], source),
    /does not have the Node 26\.10\.0 of package-lock\.json: build the image anew$/,
  );
});
