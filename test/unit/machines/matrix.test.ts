import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { must, run } from "../../harness/processes.ts";
import { cells, cellsNamed, environmentOf, nameOf } from "../../machines/matrix/cells.ts";
import { reportOf } from "../../machines/matrix/document.ts";
import {
  addResult,
  readResults,
  type SuiteResult,
  upstreamVersion,
  withResult,
} from "../../machines/matrix/results.ts";
import { systems } from "../../machines/systems.ts";

const result = (cell: string, more: Partial<SuiteResult> = {}): SuiteResult => ({
  cell,
  suite: "tour",
  source: "a",
  date: "2026-11-29",
  versions: "containerd 1.7.24",
  passed: 12,
  failures: [],
  seconds: 90,
  ...more,
});
const rowsOf = (text: string): string[][] =>
  text
    .split("\n")
    .filter((line) => line.startsWith("| Debian"))
    .map((line) =>
      line
        .split("|")
        .map((column) => column.trim())
        .slice(1, -1),
    );

test("the table has a row for each machine that was run, in the order of the cells, with each failure by name", () => {
  const failures = [{ name: "kubectl exec | cat", says: "no" }];
  const results = [
    result("debian-13/docker"),
    result("debian-13/docker", { suite: "kubectl", passed: 40, failures, date: "2026-12-01" }),
    result("debian-13/docker", { suite: "pods", passed: 3 }),
    result("debian-12/containerd", { passed: 11, failures: [{ name: "volumes", says: "no" }] }),
    result("fedora/docker"),
  ];
  const versions = "containerd 1.7.24";
  assert.deepEqual(rowsOf(reportOf(cells, results)), [
    ["Debian 12", "containerd", "2026-11-29", versions, "11 of 12", "–"],
    ["Debian 13", "docker", "2026-12-01", versions, "12 of 12", "43 of 44"],
  ]);
  assert.ok(
    reportOf(cells, results).endsWith(
      "Failed:\n\n- Debian 12, containerd: volumes\n- Debian 13, docker: kubectl: kubectl exec | cat",
    ),
  );
  assert.ok(reportOf(cells, [result("sid/docker")]).endsWith("Nothing failed."));
});

test("a result replaces the one of the same machine and suite alone", () => {
  const before = [result("sid/docker"), result("sid/docker", { suite: "pods" }), result("sid/containerd")];
  const after = withResult(before, result("sid/docker", { passed: 1 }));
  assert.deepEqual(
    after.map(({ cell, suite, passed }) => [cell, suite, passed]),
    [
      ["sid/containerd", "tour", 12],
      ["sid/docker", "pods", 12],
      ["sid/docker", "tour", 1],
    ],
  );
});

test("results outlast an interrupted run: a line that was cut short counts for nothing", () => {
  const folder = mkdtempSync(join(tmpdir(), "matrix-"));
  const file = join(folder, "below", "results.jsonl");
  try {
    addResult(file, result("sid/docker"));
    writeFileSync(file, '{"cell":"sid/docker","source":"a","pas', { flag: "a" });
    assert.deepEqual(readResults(file), [result("sid/docker")]);
    assert.deepEqual(readResults(join(folder, "none")), []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("ONLY chooses cells by their names or the beginnings of them, and names all where it fits none", () => {
  assert.deepEqual(cellsNamed("debian-12 debian-13/docker busybox/docker/d").map(nameOf), [
    "debian-12/containerd",
    "debian-12/docker",
    "debian-13/docker",
    "busybox/docker/dropbear",
  ]);
  assert.equal(cellsNamed(" ").length, cells.length);
  assert.throws(() => cellsNamed("fedora"), /ONLY is "fedora": cells are debian-12\/containerd /);
});

test("names of cells differ, and each has a system with the SSH server that it asks for", () => {
  assert.equal(new Set(cells.map(nameOf)).size, cells.length);
  for (const cell of cells) {
    const { GRAFTLET_TEST_SYSTEM, GRAFTLET_TEST_PROVIDER = "" } = environmentOf(cell);
    assert.equal(GRAFTLET_TEST_SYSTEM, cell.system);
    assert.equal(GRAFTLET_TEST_PROVIDER.endsWith(cell.kernel === "own" ? "-guest" : "-systemd"), true);
    if (cell.kernel === "shared" && cell.sshServer === "dropbear")
      assert.ok(systems[cell.system].packages.includes("dropbear"), nameOf(cell));
  }
});

test("versions are upstream's, without Debian's epoch and revision", () => {
  assert.deepEqual(["1:9.2p1-2+deb12u7", "20.10.24+dfsg1-1+b3", "257.7-1"].map(upstreamVersion), [
    "9.2",
    "20.10.24",
    "257.7",
  ]);
});

test("the reporter tells how each test ended, and why a suite was not begun", async () => {
  const reporter = `--test-reporter=${join(import.meta.dirname, "../../machines/matrix/reporter.ts")}`;
  const folder = mkdtempSync(join(tmpdir(), "reported-"));
  const told = async (body: string): Promise<unknown[]> => {
    const file = join(folder, "some.test.mjs");
    writeFileSync(file, `import { before, describe, test } from "node:test";\n${body}`);
    const { stdout } = await run(["env", "-u", "NODE_TEST_CONTEXT", process.execPath, reporter, file]);
    return stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown);
  };
  try {
    const fails = `test("fails", () => { throw new Error("two\\nlines"); });`;
    assert.deepEqual(await told(`describe("all", () => { test("passes", () => {}); ${fails} });`), [
      { name: "passes", passed: true },
      { name: "fails", passed: false, says: "two lines" },
    ]);
    const unready = await told(
      `describe("all", () => { before(() => { throw new Error("no machine"); }); test("one", () => {}); });`,
    );
    assert.deepEqual(unready.at(-1), { name: "all: preparation", passed: false, says: "no machine" });
  } finally {
    await must(["rm", "-r", folder]);
  }
});
