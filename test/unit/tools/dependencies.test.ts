import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..", "..", "..");

test("each dependency of package.json is imported by the code", () => {
  const { dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    dependencies: Record<string, string>;
  };
  const source = ["src", "providers"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .map((name) => readFileSync(join(root, folder, name), "utf8")),
  );
  const imported = (name: string) => new RegExp(`(from|import|import\\()\\s*"${name}["/]`);
  const unused = Object.keys(dependencies).filter((name) => !source.some((text) => imported(name).test(text)));
  assert.deepEqual(unused, []);
});
