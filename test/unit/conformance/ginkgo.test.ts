import assert from "node:assert/strict";
import { mkdtempDisposable, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ginkgoArgv, type GinkgoRun, runGinkgo } from "../../conformance/ginkgo.ts";
import { createProgress } from "../../conformance/progress.ts";
import { start } from "../../harness/processes.ts";

const run = { suite: "e2e.test", description: "Suite", names: ["[sig-node] A"], processes: 6, args: ["--num-nodes=1"] };

/** A run of a shell script in ginkgo's place, in a folder of its own. */
const scripted = async (folder: string, script: string): Promise<GinkgoRun & { readonly said: string[] }> => {
  const ginkgo = join(folder, "ginkgo");
  await writeFile(ginkgo, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const said: string[] = [];
  const ended = createProgress(run.names.length, (line) => said.push(line));
  return { ...run, ginkgo, folder, start, ended, said };
};

test("runs the named tests once, and writes the report to the expected place", () => {
  const argv = ginkgoArgv({ ...run, ginkgo: "/bin/ginkgo", folder: "/folder" });
  assert.equal(argv[0], "/bin/ginkgo");
  assert.deepEqual(argv.slice(argv.indexOf("e2e.test")), ["e2e.test", "--", "--num-nodes=1"]);
  assert.ok(argv.includes("--focus=^Suite (?:\\[sig-node\\] A)$"));
  for (const flag of ["--procs=6", "--output-dir=/folder", "--json-report=report.json", "--flake-attempts=1"])
    assert.ok(argv.includes(flag), flag);
});

test("reports failing tests as the result, and keeps ginkgo's output", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-ginkgo-"));
  const report = [
    {
      SpecReports: [
        {
          ContainerHierarchyTexts: ["[sig-node]"],
          LeafNodeType: "It",
          LeafNodeText: "A",
          State: "failed",
          RunTime: 2e9,
          Failure: { Message: "no" },
        },
      ],
    },
  ];
  await writeFile(join(folder.path, "made.json"), JSON.stringify(report));
  const given = await scripted(
    folder.path,
    "echo '• [FAILED] [2.000 seconds]'; echo '[sig-node] A'; echo \"in $HOME\" >&2; cp made.json report.json; exit 1",
  );
  const { tests, trouble } = await runGinkgo(given);
  assert.deepEqual([...tests], [["[sig-node] A", { state: "failed", seconds: 2, says: "no" }]]);
  assert.deepEqual(trouble, []);
  assert.deepEqual(given.said, ["1 of 1, 1 not passed: FAILED after 2 s: [sig-node] A"]);
  const output = await readFile(join(folder.path, "output.log"), "utf8");
  assert.match(output, /^\[sig-node\] A$/m);
  assert.match(output, new RegExp(`^in ${folder.path}$`, "m"));
});

test("fails with the end of ginkgo's output if ginkgo exits without a report", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-ginkgo-"));
  const given = await scripted(folder.path, "echo 'flag provided but not defined' >&2; exit 2");
  await assert.rejects(
    runGinkgo(given),
    /^Error: ginkgo ended with 2 and left no report:\nflag provided but not defined$/,
  );
});

test("interrupts a run and all its processes if no test ends for too long, and uses its report", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-ginkgo-"));
  const spec = { ContainerHierarchyTexts: ["[sig-node]"], LeafNodeType: "It", LeafNodeText: "A", RunTime: 3e9 };
  await writeFile(
    join(folder.path, "made.json"),
    JSON.stringify([{ SpecReports: [{ ...spec, State: "interrupted", Failure: { Message: "by hand" } }] }]),
  );
  const given = await scripted(folder.path, "trap 'cp made.json report.json; exit 1' INT\nsleep 60");
  const { tests } = await runGinkgo({ ...given, limits: { wholeMs: 60_000, quietMs: 300 } });
  assert.deepEqual([...tests], [["[sig-node] A", { state: "interrupted", seconds: 3, says: "by hand" }]]);
});
