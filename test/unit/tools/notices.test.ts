import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { noticesOf, packageFolders } from "../../../tools/notices.ts";

const bundle = {
  outputs: {
    "out.mjs": {
      inputs: {
        "src/main.ts": { bytesInOutput: 10 },
        "node_modules/@scope/one/lib/a.js": { bytesInOutput: 5 },
        "node_modules/@scope/one/lib/b.js": { bytesInOutput: 5 },
        "node_modules/two/node_modules/three/index.js": { bytesInOutput: 1 },
        "node_modules/unused/index.js": { bytesInOutput: 0 },
      },
    },
  },
};

test("lists the packages with code in the bundle", () => {
  assert.deepEqual(packageFolders(bundle), ["node_modules/@scope/one", "node_modules/two/node_modules/three"]);
});

test("lists each package's name, version and licence, and rejects a package without a licence", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "notices-"));
  t.after(() => rmSync(root, { recursive: true }));
  const put = (folder: string, files: Readonly<Record<string, string>>): void => {
    mkdirSync(join(root, folder), { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(root, folder, name), text);
  };
  put("node_modules/@scope/one", {
    "package.json": '{"name":"@scope/one","version":"1.2.3","license":"MIT"}',
    LICENSE: "The text of the licence.\n",
    "NOTICE.txt": "A notice.",
  });
  put("node_modules/two/node_modules/three", { "package.json": '{"name":"three","version":"3.0.0","license":"ISC"}' });
  const { text, count } = await noticesOf(bundle, root);
  assert.equal(count, 2);
  for (const part of ["@scope/one 1.2.3 (MIT)", "The text of the licence.", "A notice.", "three 3.0.0 (ISC)"])
    assert.ok(text.includes(part), part);
  put("node_modules/two/node_modules/three", { "package.json": '{"name":"three","version":"3.0.0"}' });
  await assert.rejects(noticesOf(bundle, root), /three 3\.0\.0 names no licence/);
});
