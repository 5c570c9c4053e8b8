import assert from "node:assert/strict";
import { test } from "node:test";
import { applyScript } from "../../../../../providers/ssh/files/apply-script.ts";

const commands = (script: string) => script.split("\n").slice(2, -2);

test("sets the mode of consecutive files with the same mode in one chmod, before other changes", () => {
  const script = applyScript([
    { kind: "mkdir", path: "/d", mode: 0o755 },
    { kind: "write", path: "/d/a", data: "1" },
    { kind: "write", path: "/d/b", data: "2" },
    { kind: "rename", from: "/d/a", to: "/d/c" },
    { kind: "write", path: "/d/e", data: "3", mode: 0o600 },
  ]);
  assert.deepEqual(commands(script), [
    "gl_mode=00755",
    `gl_mkdir '/d' 022 || break; [ $gl_new = 0 ] || set -- "$@" '/d'`,
    "gl_made=1",
    'gl_modes "$@" || { gl_made=0; break; }; set --',
    "gl_mode=00644",
    `gl_write '/d/a' '1' 133 || break; [ $gl_new = 0 ] || set -- "$@" '/d/a'`,
    "gl_made=2",
    `gl_write '/d/b' '2' 133 || break; [ $gl_new = 0 ] || set -- "$@" '/d/b'`,
    "gl_made=3",
    'gl_modes "$@" || { gl_made=1; break; }; set --',
    "mv -fT -- '/d/a' '/d/c' || break; gl_made=4",
    "gl_mode=00600",
    `gl_write '/d/e' '3' 177 || break; [ $gl_new = 0 ] || set -- "$@" '/d/e'`,
    "gl_made=5",
    'gl_modes "$@" || { gl_made=4; break; }; set --',
  ]);
});

test("chmods a file once per write, and limits the paths of one chmod", () => {
  const twice = applyScript([
    { kind: "write", path: "/f", data: "1" },
    { kind: "write", path: "/f", data: "2" },
  ]);
  assert.equal(twice.match(/gl_modes "\$@" \|\|/g)?.length, 2);
  const many = applyScript(Array.from({ length: 500 }, (_, index) => ({ kind: "write", path: `/${index}`, data: "" })));
  assert.equal(many.match(/gl_modes "\$@" \|\|/g)?.length, 3);
});

test("creates a directory with its mode unless it has bits that mkdir does not set", () => {
  const lines = (mode: number) => applyScript([{ kind: "mkdir", path: "/d", mode }]);
  assert.match(lines(0o700), /gl_mkdir '\/d' 077 \|\|/);
  assert.match(lines(0o777), /gl_mkdir '\/d' 000 \|\|/);
  assert.match(lines(0o2775), /gl_mkdir '\/d' \|\|/);
});

test("creates parents from the top down", () => {
  const script = applyScript([{ kind: "mkdir", path: "/a/b/c", mode: 0o700, parents: true }]);
  assert.deepEqual(
    [...script.matchAll(/gl_mkdir '([^']*)'/g)].map((match) => match[1]),
    ["/a", "/a/b", "/a/b/c"],
  );
});

test("uses one command for each other change", () => {
  const script = applyScript([
    { kind: "create", path: "/c" },
    { kind: "symlink", path: "/l", target: "to" },
    { kind: "chmod", path: "/f", mode: 0o4755 },
    { kind: "chown", path: "/f", uid: 1, gid: 2 },
    { kind: "remove", path: "/d/x" },
    { kind: "remove", path: "/d/y", recursive: true },
  ]);
  assert.deepEqual(
    commands(script).map((line) => line.split(" || ")[0]),
    [
      "gl_create '/c'",
      "gl_links=",
      "gl_symlink '/l' 'to'",
      "chmod -- 04755 '/f'",
      "chown -h -- 1:2 '/f'",
      "gl_remove '/d' 'x' one",
      "gl_remove '/d' 'y' tree",
    ],
  );
});

test("makes consecutive directories of one mode ahead, by one command, and so consecutive links named like their targets", () => {
  const dirs = ["/r/a", "/r/a/b", "/r/c"].map((path) => ({ kind: "mkdir", path, mode: 0o750, parents: true }) as const);
  assert.deepEqual(
    commands(applyScript(dirs)).filter((line) => line.startsWith("gl_mkdirs")),
    ["gl_mkdirs 027 00750 '/r/a' '/r/a/b' '/r/c'"],
  );
  const links = ["/v/x", "/v/y", "/w/x"].map(
    (path) => ({ kind: "symlink", path, target: `..data/${path.slice(3)}` }) as const,
  );
  assert.deepEqual(
    commands(applyScript([...links, { kind: "symlink", path: "/v/..data", target: "..1" }])).slice(0, 3),
    ["gl_links=", "gl_symlinks '/v' '..data/x' '..data/y'", "gl_symlink '/v/x' '..data/x' || break; gl_made=1"],
  );
});
