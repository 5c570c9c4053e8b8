import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cached } from "../../machines/debian.ts";

const cache = process.env.XDG_CACHE_HOME;
let home: string;
before(() => {
  home = mkdtempSync(join(tmpdir(), "cached-"));
  process.env.XDG_CACHE_HOME = home;
});
after(() => {
  if (cache === undefined) delete process.env.XDG_CACHE_HOME;
  else process.env.XDG_CACHE_HOME = cache;
  rmSync(home, { recursive: true });
});

/** A product whose maker writes a word into a file, and how often it was at work. */
function product(recipe: string, word = "whole") {
  let made = 0;
  const make = async (folder: string): Promise<void> => {
    made += 1;
    mkdirSync(folder);
    writeFileSync(join(folder, "word"), word);
    if (word === "half") throw new Error("the power went");
  };
  const ask = () => cached({ kind: "disk", recipe, waiting: "making", say: () => {}, make });
  return { ask, times: () => made };
}
const word = (folder: string): string => readFileSync(join(folder, "word"), "utf8");

test("builds an artifact once per recipe for concurrent callers", async () => {
  const [one, other] = [product("one"), product("other")];
  const [first, second] = await Promise.all([one.ask(), one.ask()]);
  assert.equal(first, second);
  assert.equal(one.times(), 1);
  assert.notEqual(await other.ask(), first);
  assert.equal(word(first), "whole");
});

test("rebuilds an artifact whose build was interrupted", async () => {
  const machines = join(home, "graftlet", "machines");
  const before = readdirSync(machines).filter((name) => name.startsWith("disk-"));
  await assert.rejects(product("cut", "half").ask(), /the power went/);
  assert.ok(existsSync(join(machines, "disk.partial")));
  assert.deepEqual(
    readdirSync(machines).filter((name) => name.startsWith("disk-")),
    before,
  );
  assert.equal(word(await product("cut").ask()), "whole");
  assert.ok(!existsSync(join(machines, "disk.partial")));
});
