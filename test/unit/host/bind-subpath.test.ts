import assert from "node:assert/strict";
import { test } from "node:test";
import { SubPathError, bindSubPaths, isInsideVolume } from "../../../src/host/bind-subpath.ts";
import { parseMountSources } from "../../../src/host/mounts.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

/** Mount tables with a volume, and whether the mount at /t is inside the volume. */
const cases: readonly (readonly [what: string, table: readonly string[], base: string, verdict: boolean])[] = [
  ["a directory of the volume", ["8:1 / /", "8:1 /v/a /t"], "/v", true],
  ["the whole volume", ["8:1 / /", "8:1 /v /t"], "/v", true],
  ["a directory next to the volume", ["8:1 / /", "8:1 /va /t"], "/v", false],
  ["a directory above the volume", ["8:1 / /", "8:1 / /t"], "/v", false],
  ["the same path in another file system", ["8:1 / /", "8:2 /v/a /t"], "/v", false],
  ["another path", ["8:1 / /", "8:1 /v/a /other"], "/v", false],
  ["a deleted directory", ["8:1 / /", "8:1 /v/a//deleted /t"], "/v", false],
  ["a directory of a volume that is a mount point", ["8:1 / /", "0:40 / /v", "0:40 /a /t"], "/v", true],
  [
    "a directory of a volume in a bind mount",
    ["8:1 / /", "8:2 /disk/pods /pods", "8:2 /disk/pods/v/a /t"],
    "/pods/v",
    true,
  ],
  [
    "a directory next to a volume in a bind mount",
    ["8:1 / /", "8:2 /disk/pods /pods", "8:2 /disk/v/a /t"],
    "/pods/v",
    false,
  ],
  ["a directory that the volume's mount hides", ["8:1 / /", "0:40 / /v", "8:1 /v/a /t"], "/v", false],
  ["a file system that is mounted in the volume", ["8:1 / /", "8:2 /data /v/a", "8:2 /data/b /t"], "/v", true],
  [
    "another directory of a file system that is partly mounted in the volume",
    ["8:1 / /", "8:2 /data /v/a", "8:2 /secret /t"],
    "/v",
    false,
  ],
  ["a directory outside, over an earlier mount of the volume", ["8:1 / /", "8:1 /v/a /t", "8:1 /etc /t"], "/v", false],
  ["a device below a volume that is the machine's root", ["8:1 / /", "0:5 / /dev", "0:5 /null /t"], "/", true],
  ["a directory below a volume that is a root within a file system", ["8:1 /root /", "8:1 /root/etc /t"], "/", true],
  ["a directory outside a volume that is a root within a file system", ["8:1 /root /", "8:1 /other /t"], "/", false],
  ["a directory with a blank in its name", ["8:1 / /", "8:1 /v\\040w/a\\040b /t"], "/v w", true],
];

for (const [what, table, base, verdict] of cases)
  test(`a mount of ${what} is ${verdict ? "" : "not "}inside the volume`, () => {
    assert.equal(isInsideVolume(parseMountSources(table.join("\n")), base, "/t"), verdict);
  });

/** A machine whose shell prints these lines. */
function machineThatSays(...lines: readonly string[]) {
  const host = fakeHost({ clock: fakeClock() });
  host.program("sh", (_args, { stdout, stderr }) => {
    stdout.write(`${lines.join("\n")}\n`);
    stderr.write("why\n");
    return 0;
  });
  return host;
}

const part = (name: string) => ({ base: "/v", below: name, target: `/pods/${name}` });

test("before returning, unmounts a bind mount that leads outside its volume, but keeps the others", async () => {
  const said = ["bound", "/v", "/pods/a", "bound", "/v", "/pods/b", ""];
  const host = machineThatSays(...said, "8:1 / /", "8:1 /v/a /pods/a", "8:1 /etc /pods/b");
  await host.fs.apply([
    { kind: "mkdir", path: "/pods/a", parents: true },
    { kind: "mkdir", path: "/pods/b" },
  ]);
  host.files.mount("/pods/a", "none");
  host.files.mount("/pods/b", "none");
  await assert.rejects(bindSubPaths(host, [part("a"), part("b")], never), { index: 1, step: "bind" });
  assert.deepEqual(
    host.files.mounted().map(({ path }) => path),
    ["/pods/a"],
  );
});

test("reports the first failure with its step", async () => {
  const told = (...lines: readonly string[]) => bindSubPaths(machineThatSays(...lines), [part("a"), part("b")], never);
  const bound = ["bound", "/v", "/pods/a"];
  const table = ["", "8:1 / /", "8:1 /v/a /pods/a"];
  await assert.rejects(told("create", ...table), { index: 0, step: "create", message: "why" });
  await assert.rejects(told(...bound, "bind", ...table), { index: 1, step: "bind" });
  await assert.rejects(told(...bound, ...table), (error) => error instanceof SubPathError && error.index === 1);
  await assert.rejects(told(...table), { index: 0 });
});
