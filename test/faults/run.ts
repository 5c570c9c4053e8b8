// make faults: makes each mistake of faults.ts in a checkout of HEAD that is thrown away, and runs the tests that have to find it.
// FAULT=name makes one; DRY=1 makes them in memory alone, and prints what changes.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must } from "../harness/processes.ts";
import type { Fault, FaultTest } from "./fault.ts";
import { faults } from "./faults.ts";
import { changedLines, makeMistake } from "./make-mistake.ts";
import { nameOf, runOf, type Verdict, verdictOf } from "./plan.ts";
import { parseProgram } from "./program.ts";
import type { Outcome } from "./reporter.ts";

const project = join(import.meta.dirname, "..", "..");

/** A checkout of HEAD with the packages of this one. */
async function checkOut(folder: string): Promise<void> {
  await must(["git", "-C", project, "worktree", "add", "--detach", "--quiet", folder, "HEAD"]);
  const modules = join(project, "node_modules");
  await must(["sh", "-c", 'cp -al "$1" "$2" 2>/dev/null || cp -a "$1" "$2"', "cp", modules, `${folder}/`], {
    timeoutMs: 300_000,
  });
}

async function runTest(test: FaultTest, checkout: string, report: string): Promise<Verdict> {
  rmSync(report, { force: true });
  const { args, env, minutes } = runOf(test, report);
  const limits = ["--signal=INT", "--kill-after=60", `${minutes}m`];
  const child = spawn("timeout", [...limits, process.execPath, ...args], {
    cwd: checkout,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, GRAFTLET_TEST_MARK: process.env.GRAFTLET_TEST_MARK ?? "fault", ...env },
  });
  await new Promise<void>((resolve, reject) => child.once("error", reject).once("close", () => resolve()));
  const lines = existsSync(report) ? readFileSync(report, "utf8").split("\n").filter(Boolean) : [];
  return verdictOf(lines.map((line) => JSON.parse(line) as Outcome));
}

/** @returns whether every test that has to find the fault does. */
async function runFault(fault: Fault, scratch: string): Promise<boolean> {
  const checkout = join(scratch, fault.name);
  console.log(`==> ${fault.name}: ${fault.breaks}`);
  await checkOut(checkout);
  try {
    using program = parseProgram(checkout);
    const { file, after } = makeMistake(program, fault.in, fault.mistake);
    writeFileSync(join(checkout, file), after);
    let all = true;
    for (const test of fault.foundBy) {
      const began = performance.now();
      const { found, because } = await runTest(test, checkout, join(scratch, "report"));
      const seconds = Math.round((performance.now() - began) / 1000);
      console.log(`    ${found ? "found" : "NOT FOUND"} by ${nameOf(test)} in ${seconds} s: ${because}`);
      all &&= found;
    }
    return all;
  } finally {
    await must(["git", "-C", project, "worktree", "remove", "--force", checkout], { timeoutMs: 300_000 });
  }
}

/** Prints the lines of the working tree that each mistake changes. @throws Error where one cannot be made. */
function showFaults(wanted: readonly Fault[]): void {
  using program = parseProgram(project);
  for (const fault of wanted) {
    const made = makeMistake(program, fault.in, fault.mistake);
    const { before, after } = changedLines(made);
    console.log([`==> ${fault.name}: ${made.file}`, `- ${before}`, `+ ${after}`].join("\n"));
  }
}

async function main(): Promise<number> {
  const name = process.env.FAULT ?? "";
  const wanted = faults.filter((fault) => name === "" || fault.name === name);
  if (wanted.length === 0) {
    console.error(`there is no fault ${name}: FAULT is one of ${faults.map((fault) => fault.name).join(", ")}`);
    return 2;
  }
  if (process.env.DRY) {
    showFaults(wanted);
    return 0;
  }
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-faults-"));
  try {
    const missed: string[] = [];
    for (const fault of wanted) if (!(await runFault(fault, scratch))) missed.push(fault.name);
    console.log(`==> ${wanted.length - missed.length} of ${wanted.length} faults found`);
    if (missed.length > 0) console.log(`    not found: ${missed.join(", ")}`);
    return missed.length === 0 ? 0 : 1;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

process.exitCode = await main();
