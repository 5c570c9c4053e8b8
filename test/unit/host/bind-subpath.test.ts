import assert from "node:assert/strict";
import { test } from "node:test";
import { SubPathError, bindSubPaths, isInsideVolume } from "../../../src/host/bind-subpath.ts";
import { parseMountSources } from "../../../src/host/mounts.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

/** Mount tables with a volume, and whether the mount at /t is inside the volume. */
const cases: readonly (readonly [what: string, table: readonly string[], base: string, verdict: boolean])[] = [
  ["a directory of the tree", ["8:1 / /", "8:1 /v/a /t"], "/v", true],
  ["all of the tree", ["8:1 / /", "8:1 /v /t"], "/v", true],
  ["a directory beside it", ["8:1 / /", "8:1 /va /t"], "/v", false],
  ["a directory above it", ["8:1 / /", "8:1 / /t"], "/v", false],
  ["the same path in another file system", ["8:1 / /", "8:2 /v/a /t"], "/v", false],
  ["nothing", ["8:1 / /", "8:1 /v/a /other"], "/v", false],
  ["what has been deleted", ["8:1 / /", "8:1 /v/a//deleted /t"], "/v", false],
  ["a tree that is a mount", ["8:1 / /", "0:40 / /v", "0:40 /a /t"], "/v", true],
  ["a tree in a mount of a part", ["8:1 / /", "8:2 /disk/pods /pods", "8:2 /disk/pods/v/a /t"], "/pods/v", true],
  ["beside such a tree", ["8:1 / /", "8:2 /disk/pods /pods", "8:2 /disk/v/a /t"], "/pods/v", false],
  ["what the tree's mount hides", ["8:1 / /", "0:40 / /v", "8:1 /v/a /t"], "/v", false],
  ["a mount in the tree", ["8:1 / /", "8:2 /data /v/a", "8:2 /data/b /t"], "/v", true],
  ["beside a mount in the tree", ["8:1 / /", "8:2 /data /v/a", "8:2 /secret /t"], "/v", false],
  ["the newest of mounts in one place", ["8:1 / /", "8:1 /v/a /t", "8:1 /etc /t"], "/v", false],
  ["the whole machine", ["8:1 / /", "0:5 / /dev", "0:5 /null /t"], "/", true],
  ["a machine in a part of its disk", ["8:1 /root /", "8:1 /root/etc /t"], "/", true],
  ["outside such a machine", ["8:1 /root /", "8:1 /other /t"], "/", false],
  ["a name with a blank", ["8:1 / /", "8:1 /v\\040w/a\\040b /t"], "/v w", true],
];

for (const [what, table, base, verdict] of cases)
  test(`${what} is ${verdict ? "" : "not "}inside the volume`, () => {
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

test("unmounts a bind mount that leads outside its volume before returning; keeps the others", async () => {
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
