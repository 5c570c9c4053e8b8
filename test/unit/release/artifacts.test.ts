import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { entriesOf } from "../../../tools/release/archive.ts";
import { makeTarballs } from "../../../tools/release/artifacts.ts";
import { readSource, root } from "../../../tools/release/source.ts";

test("keeps an existing release in dist while its program is built", async (t) => {
  const dist = join(root, "dist");
  mkdirSync(dist, { recursive: true });
  const release = mkdtempSync(join(dist, "release-"));
  t.after(() => rmSync(release, { recursive: true, force: true }));
  const source = await readSource({ draft: true });
  const node = { version: "24.0.0", program: Buffer.from("node"), license: Buffer.from("licence") };
  const [tarball = Buffer.alloc(0)] = Object.values(await makeTarballs(source, new Map([["arm64", node]])));
  assert.ok(existsSync(release), "the build has emptied dist");
  const names = (await entriesOf(gunzipSync(tarball))).map(({ header }) => header.name);
  assert.ok(names.includes(`graftlet-${source.version}-linux-arm64/graftlet.mjs`), names.join());
});
