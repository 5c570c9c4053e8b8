import { deepEqual, doesNotThrow, equal, match, ok } from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import type { FaultTest } from "../../faults/fault.ts";
import { faults } from "../../faults/faults.ts";
import { integration } from "../../matrix.ts";
import { makeMistake } from "../../faults/make-mistake.ts";
import { nameOf, runOf, verdictOf } from "../../faults/plan.ts";
import { parseProgram } from "../../faults/program.ts";

const project = join(import.meta.dirname, "..", "..", "..");
const read = (path: string): string => readFileSync(join(project, path), "utf8");

test("every fault changes one place in the sources so that they still parse, and has a description and a unique name", () => {
  using program = parseProgram(project);
  for (const fault of faults) {
    doesNotThrow(() => makeMistake(program, fault.in, fault.mistake), fault.name);
    match(fault.breaks, /^\S.*\.$/s, fault.name);
    match(fault.assertion, /\S/, fault.name);
    ok(fault.foundBy.length > 0, fault.name);
  }
  equal(new Set(faults.map(({ name }) => name)).size, faults.length);
});

test("at least nine faults are found only on a real cluster, at least one with each provider", () => {
  const onCluster = faults.filter(({ foundBy }) => foundBy.every(({ part }) => part === "integration"));
  ok(onCluster.length >= 9, String(onCluster.length));
  const providers = onCluster.flatMap(({ foundBy }) => foundBy.map(({ provider }) => provider));
  deepEqual(new Set(providers), new Set([undefined, "ssh", "ssh-docker"]));
});

test("the tests that find each fault exist, and continuous integration runs them", () => {
  for (const { name, foundBy } of faults)
    for (const one of foundBy) {
      ok(existsSync(join(project, one.file)), `${name}: ${one.file}`);
      ok(hasTest(one), `${name}: ${one.title} in ${one.file}`);
      ok(isRun(one), `${name}: continuous integration does not run ${nameOf(one)}`);
    }
});

function hasTest({ file, title }: FaultTest): boolean {
  const starts = ['"', "`"].map((quote) => `test(${quote}${title}`);
  return title === undefined || sourcesOf(file).some((text) => starts.some((start) => text.includes(start)));
}

/** A file of tests, and those beside it that hold its parts. */
function sourcesOf(file: string): string[] {
  return [file, ...globSync(`${file.replace(/\.test\.ts$/, "")}/*.ts`, { cwd: project })].map(read);
}

/** As the matrix chooses files for each provider. */
function isRun({ part, provider, file }: FaultTest): boolean {
  if (part !== "integration") return file.startsWith(`test/${part}/`) && file.endsWith(".test.ts");
  const { on, more = [] } = integration[basename(file, ".test.ts")] ?? { on: [] };
  return [...on, ...more].some((one) => one === (provider ?? "cri"));
}

test("a fault counts as found if a test or its set-up fails, but not if no test ran", () => {
  const passed = { title: "adds", passed: true, inSetUp: false, message: "" };
  const failed = { title: "adds (2)", passed: false, inSetUp: false, message: "1 !== 3" };
  deepEqual(verdictOf([passed, failed]), { found: true, because: '"adds (2)": 1 !== 3' });
  deepEqual(verdictOf([{ ...failed, inSetUp: true }]), { found: true, because: 'set-up of "adds (2)": 1 !== 3' });
  deepEqual(verdictOf([passed]), { found: false, because: "1 test passed" });
  deepEqual(verdictOf([]), { found: false, because: "no test ran to its end" });
});

test("runs a test by its exact title, with its provider", () => {
  const { args, env } = runOf({ part: "integration", provider: "ssh", file: "a.test.ts", title: "a (b)" }, "/out");
  const pattern = args.find((arg) => arg.startsWith("--test-name-pattern="))?.split("=")[1] ?? "";
  deepEqual([new RegExp(pattern).test("a (b), c"), new RegExp(pattern).test("a b")], [true, false]);
  deepEqual([args.at(-1), env["GRAFTLET_TEST_PROVIDER"]], ["a.test.ts", "ssh"]);
  deepEqual(runOf({ part: "unit", file: "a.test.ts" }, "/out").env, {});
});
