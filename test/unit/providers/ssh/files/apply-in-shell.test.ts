import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { applyScript, changesMade } from "../../../../../providers/ssh/files/apply-script.ts";
import { prelude } from "../../../../../providers/ssh/shell/shell.ts";
import type { FileChange } from "../../../../../src/seams/host.ts";

/** A directory, and what a shell on this machine makes of changes in it: the number of changes made, the system's message and the
 *  programs that it started. */
function shell(t: TestContext) {
  const root = mkdtempSync(join(tmpdir(), "graftlet-apply-"));
  t.after(() => rmSync(root, { recursive: true }));
  const started = join(root, "started");
  const traced = ["mkdir", "chmod", "ln", "readlink"].map(
    (name) => `${name}() { echo ${name} >>${started}; command ${name} "$@"; }`,
  );
  return {
    root,
    mode: (path: string) => lstatSync(join(root, path)).mode & 0o7777,
    apply(changes: readonly FileChange[]) {
      rmSync(started, { force: true });
      const script = `${prelude()}\n${traced.join("\n")}\n{ ${applyScript(changes)}\n} </dev/null\necho ${changesMade}\n`;
      const { stdout, stderr } = spawnSync("/bin/sh", [], { input: script, encoding: "utf8" });
      const programs = spawnSync("cat", [started], { encoding: "utf8" }).stdout.split("\n").filter(Boolean);
      return { made: Number(stdout), message: stderr, programs };
    },
  };
}

const directory = (path: string, mode = 0o750): FileChange => ({ kind: "mkdir", path, mode });

test("makes consecutive directories of one mode by one program, with that mode", (t) => {
  const { root, mode, apply } = shell(t);
  const paths = ["a", "a/b", "c", "a"].map((name) => directory(join(root, name)));
  assert.deepEqual(apply(paths), { made: 4, message: "", programs: ["mkdir"] });
  assert.deepEqual(["a", "a/b", "c"].map(mode), [0o750, 0o750, 0o750]);
  assert.deepEqual(apply(paths), { made: 4, message: "", programs: [] });
});

test("directories get exactly their mode below one that hands down its group", (t) => {
  const { root, mode, apply } = shell(t);
  mkdirSync(join(root, "shared"));
  chmodSync(join(root, "shared"), 0o2775);
  apply([
    directory(join(root, "shared/a")),
    directory(join(root, "shared/b"), 0o750),
    directory(join(root, "shared/c"), 0o2750),
  ]);
  assert.deepEqual(["shared/a", "shared/b", "shared/c"].map(mode), [0o750, 0o750, 0o2750]);
});

test("the first directory that cannot be made is reported, and no change of another kind is made after it", (t) => {
  const { root, apply } = shell(t);
  writeFileSync(join(root, "file"), "");
  const changes: readonly FileChange[] = [
    directory(join(root, "a")),
    directory(join(root, "file")),
    directory(join(root, "b")),
    { kind: "write", path: join(root, "after"), data: "" },
  ];
  const { made, message } = apply(changes);
  assert.equal(made, 1);
  assert.match(message, /file.*File exists/);
  assert.throws(() => lstatSync(join(root, "after")));
});

test("makes consecutive links named like their targets by one program; an existing link must be the same", (t) => {
  const { root, apply } = shell(t);
  const link = (name: string, target = `..data/${name}`): FileChange => ({
    kind: "symlink",
    path: join(root, name),
    target,
  });
  const links = [link("x"), link("y [*]"), link("other", "elsewhere")];
  assert.deepEqual(apply(links), { made: 3, message: "", programs: ["ln", "ln"] });
  assert.deepEqual(
    ["x", "y [*]", "other"].map((name) => readlinkSync(join(root, name))),
    ["..data/x", "..data/y [*]", "elsewhere"],
  );
  assert.equal(apply(links).made, 3);
  assert.equal(apply([link("z"), link("x", "new/x"), link("w")]).made, 1);
  // A link that the same changes remove is made again.
  assert.equal(apply([link("p"), link("q"), { kind: "remove", path: join(root, "p") }, link("p")]).made, 4);
  assert.equal(readlinkSync(join(root, "p")), "..data/p");
});

test("a new file gets its mode without a program, and an existing one its new mode", (t) => {
  const { root, mode, apply } = shell(t);
  const file = (name: string, bits: number): FileChange => ({
    kind: "write",
    path: join(root, name),
    data: "x",
    mode: bits,
  });
  const changes = [file("a", 0o644), file("b", 0o600), file("c", 0o640)];
  assert.deepEqual(apply(changes), { made: 3, message: "", programs: [] });
  assert.deepEqual(["a", "b", "c"].map(mode), [0o644, 0o600, 0o640]);
  assert.deepEqual(apply([file("a", 0o400), file("run", 0o755)]).made, 2);
  assert.deepEqual(["a", "run"].map(mode), [0o400, 0o755]);
  assert.equal(readFileSync(join(root, "a"), "utf8"), "x");
});
