// make machines: the tour on machines of several systems, runtimes and SSH servers. See docs/machines.md.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { withPart } from "../../bench/document.ts";
import { must } from "../../harness/processes.ts";
import { type BuiltRuntime, buildRuntime, programsOf } from "../../harness/tools.ts";
import { guestImage } from "../guest-image.ts";
import { guestOf } from "../guest-systems.ts";
import { systemRoot } from "../root.ts";
import { builtRuntimeOf, type Cell, cells, cellsNamed, environmentOf, nameOf, packagesOf } from "./cells.ts";
import { reportOf } from "./document.ts";
import { addResult, type Ended, readResults, type SuiteResult, upstreamVersion, withResult } from "./results.ts";

const project = join(import.meta.dirname, "..", "..", "..");
const page = join(project, "docs", "machines.md");
/** The last result of each cell and suite, for the page. */
const lastResults = join(import.meta.dirname, "results.json");
/** All results on this machine, so that a run goes on where the last one was interrupted. */
const records = join(
  process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"),
  "graftlet",
  "machines-matrix",
  "results.jsonl",
);

/** Files beside this one: the tour, and the contract of the runtime's seam. */
const ownSuites: readonly string[] = ["tour", "contract"];

/** Files of test/integration that ask nothing of the target but what each of these systems has. */
const furtherSuites = ["containers", "kubectl", "lifecycle", "pods", "pods-end", "volumes", "volumes-objects"];

/** Longest time that a suite takes, its cluster included: on a machine with a kernel of its own, which is emulated, too. */
const limitsMs = { shared: 15 * 60_000, own: 60 * 60_000 } as const;
const say = (line: string): void => console.error(`${new Date().toISOString().slice(11, 16)} ${line}`);

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(name, () => stop.abort(new Error(name)));

try {
  const { ONLY = "", AGAIN = "", SUITES = "" } = process.env;
  await runAll(cellsNamed(ONLY), suitesNamed(SUITES), AGAIN !== "");
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}

/** The suites of these names, separated by spaces; the tour unless given. @throws when one is not known. */
function suitesNamed(asked: string): readonly string[] {
  const known = [...ownSuites, ...furtherSuites];
  if (asked === "all") return known;
  const suites = asked === "" ? ["tour"] : asked.split(" ");
  const unknown = suites.find((suite) => !known.includes(suite));
  if (unknown !== undefined) throw new Error(`SUITES names "${unknown}": write all, or some of ${known.join(" ")}`);
  return suites;
}

/** Runs what this source has not been run with, one after the other, and writes the page after each. */
async function runAll(chosen: readonly Cell[], suites: readonly string[], again: boolean): Promise<void> {
  const source = await sourceId();
  say(`${chosen.length} machines; results in ${records}`);
  for (const cell of chosen)
    for (const suite of suites.filter((each) => fits(each, cell))) {
      const known = readResults(records).findLast(
        (each) => each.cell === nameOf(cell) && each.suite === suite && each.source === source,
      );
      const result = known && !again ? known : await runSuite(cell, suite, source);
      if (result !== known) addResult(records, result);
      say(`${told(result)}${result === known ? " (known; AGAIN=1 runs it once more)" : ""}`);
      if (result.failures.length > 0) process.exitCode = 1;
      keep(result);
    }
}

/** The contract gives containers no directories for their logs, as a kubelet does and CRI-O requires. */
function fits(suite: string, { runtime }: Cell): boolean {
  return suite !== "contract" || runtime !== "crio";
}

/** Writes a result into the list of the last ones, and the page from that. */
function keep(result: SuiteResult): void {
  const before = existsSync(lastResults) ? (JSON.parse(readFileSync(lastResults, "utf8")) as SuiteResult[]) : [];
  const results = withResult(before, result);
  writeFileSync(lastResults, `${JSON.stringify(results, undefined, 2)}\n`);
  writeFileSync(page, withPart(readFileSync(page, "utf8"), "machines matrix", reportOf(cells, results)));
}

/** Names the source that runs: another commit, or a change that is not committed, has another name. Results are no part of it. */
async function sourceId(): Promise<string> {
  const git = (args: readonly string[]) => must(["git", "-C", project, ...args]);
  const places = ["src", "providers", "test", ":!test/machines/matrix/results.json"];
  const said = await Promise.all([
    git(["ls-tree", "-r", "HEAD", "src", "providers", "test"]),
    git(["diff", "HEAD", "--", ...places]),
  ]);
  const trees = said
    .join("\n")
    .split("\n")
    .filter((line) => !line.endsWith("test/machines/matrix/results.json"));
  return createHash("sha256").update(trees.join("\n")).digest("hex").slice(0, 16);
}

function told({ cell, suite, passed, failures, seconds }: SuiteResult): string {
  const lines = failures.map(({ name, says }) => `\n      ${name}: ${says}`);
  return `${cell}: ${suite}: ${passed} of ${passed + failures.length} passed, ${seconds} s${lines.join("")}`;
}

/** Runs a suite on one machine. One that ends before its tests is a failure of its own. */
async function runSuite(cell: Cell, suite: string, source: string): Promise<SuiteResult> {
  const began = performance.now();
  const ended: Ended[] = [];
  const minute = setInterval(() => {
    const failed = ended.filter(({ passed }) => !passed).length;
    say(`${nameOf(cell)}: ${suite}: ${ended.length} tests, ${failed} failed so far`);
  }, 60_000);
  say(`${nameOf(cell)}: ${suite} begins`);
  try {
    const versions = await versionsOf(cell);
    const code = await runFile(cell, fileOf(suite), (end) => ended.push(end));
    stop.signal.throwIfAborted();
    const failures = ended.flatMap((end) => (end.passed ? [] : [{ name: end.name, says: end.says }]));
    if (code !== 0 && failures.length === 0) failures.push({ name: "the suite itself", says: `it ended with ${code}` });
    return {
      cell: nameOf(cell),
      suite,
      source,
      date: new Date().toISOString().slice(0, 10),
      versions,
      passed: ended.filter((end) => end.passed).length,
      failures,
      seconds: Math.round((performance.now() - began) / 1000),
    };
  } finally {
    clearInterval(minute);
  }
}

function fileOf(suite: string): string {
  return ownSuites.includes(suite)
    ? join(import.meta.dirname, `${suite}.test.ts`)
    : join(project, "test", "integration", `${suite}.test.ts`);
}

/** Versions of what a cell is made of, as its packages have them. */
async function versionsOf(cell: Cell): Promise<string> {
  const versionOf = async (name: string) => upstreamVersion(await packageVersion(cell, name));
  const named = Object.entries(packagesOf(cell)).map(async ([program, name]) => `${program} ${await versionOf(name)}`);
  const built = builtRuntimeOf(cell);
  return [...(built ? [await builtVersion(built)] : []), ...(await Promise.all(named))].join(", ");
}

/** Version of a package on a cell's machine. */
async function packageVersion(cell: Cell, name: string): Promise<string> {
  if (cell.kernel === "shared") {
    const root = await systemRoot(cell.system, say);
    return must(["chroot", root, "dpkg-query", "--show", "--showformat=${Version}", name]);
  }
  const { disk } = await guestImage(say, guestOf(cell.system));
  const known = await must(["debugfs", "-R", "cat /var/lib/dpkg/status", disk]);
  const stanza = known.split("\n\n").find((text) => text.startsWith(`Package: ${name}\n`));
  return /^Version: (.+)$/m.exec(stanza ?? "")?.[1] ?? "unknown";
}

/** As the program itself has it: `Docker version 29.8.1-dev, build library-import`, `crio version 1.34.0`. */
async function builtVersion(runtime: BuiltRuntime): Promise<string> {
  const [program] = programsOf[runtime];
  const said = await must([join(await buildRuntime(runtime, say), program), "--version"]);
  return `${runtime === "crio" ? "CRI-O" : "Docker"} ${/ version ([^ ,\n]+)/.exec(said)?.[1]}`;
}

/** Runs a test file in a process of its own. @param heard is called for each test that ends. @returns its exit code. */
async function runFile(cell: Cell, file: string, heard: (end: Ended) => void): Promise<number | null> {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const reporter = `--test-reporter=${join(import.meta.dirname, "reporter.ts")}`;
  const limitMs = limitsMs[cell.kernel];
  const child = spawn(process.execPath, [reporter, `--test-timeout=${limitMs}`, file], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...env, ...environmentOf(cell) },
    signal: stop.signal,
    timeout: limitMs + 60_000,
  });
  const exited = once(child, "exit") as Promise<[number | null]>;
  // Its failure is heard of below, once its output has ended.
  exited.catch(() => undefined);
  for await (const line of createInterface(child.stdout)) if (line.startsWith("{")) heard(JSON.parse(line) as Ended);
  const [code] = await exited;
  return code;
}
