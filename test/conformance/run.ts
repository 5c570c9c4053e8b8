// make conformance: Kubernetes' own tests on a node that graftlet runs, or the kubelet. See docs/conformance.md.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { withPart } from "../bench/document.ts";
import { containerdUnderTest } from "../harness/containerd-version.ts";
import { dockerUnderTest } from "../harness/docker-version.ts";
import { buildSuites, findTools } from "../harness/tools.ts";
import { limitsWith, parseLimits } from "./limits.ts";
import { matching, parseList, type SuiteName, suiteNames } from "./list.ts";
import { type ConformanceOptions, type Provider, readOptions, targetWith } from "./options.ts";
import type { SuiteOutcome } from "./outcomes.ts";
import { createProgress } from "./progress.ts";
import { failureLine, partOf, tableOf } from "./page.ts";
import { runFolder, runsSuite, suites } from "./suites.ts";
import { verdictsOn } from "./verdicts.ts";
import { versionsLine } from "./versions.ts";

const project = join(import.meta.dirname, "..", "..");
const page = join(project, "docs", "conformance.md");
const say = (line: string): void => console.error(line);
const fileHere = (name: string): string => readFileSync(join(import.meta.dirname, name), "utf8");

try {
  process.exitCode = await conformance(readOptions(process.env));
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}

/** @returns the exit code: 0 when every test that was to run has passed. */
async function conformance(options: ConformanceOptions): Promise<number> {
  const { provider, agent, network, whole } = options;
  const list = parseList(fileHere("tests.txt"), "test/conformance/tests.txt");
  const limits = parseLimits(fileHere("limits.yaml"), "test/conformance/limits.yaml", list);
  const met = limitsWith(provider, network, limits);
  const part = parseList(fileHere("part.txt"), "test/conformance/part.txt");
  const others = options.list === undefined ? undefined : parseList(readFileSync(options.list, "utf8"), options.list);
  const asked = matching(others ?? (options.part ? part : list), options.focus);
  const tests = asked.filter(({ suite }) => runsSuite(suite, options));
  const began = performance.now();
  const docker = dockerUnderTest(targetWith(provider));
  const tools = await findTools(say, containerdUnderTest(), undefined, docker);
  const madeOn = await versionsLine(tools, provider, agent);
  say(`${tests.length} tests on ${madeOn}`);

  const outcomes = new Map<SuiteName, SuiteOutcome>();
  for (const suite of suiteNames) {
    const names = tests.filter((test) => test.suite === suite).map(({ name }) => name);
    if (names.length > 0) outcomes.set(suite, await outcomeOf(suite, names, options));
  }

  const verdicts = verdictsOn(tests, outcomes);
  const failed = verdicts.filter(({ passed }) => !passed);
  const minutes = Math.round((performance.now() - began) / 60_000);
  console.log(`\n${tableOf(verdicts)}\n\n${minutes} minutes on ${madeOn}`);
  for (const verdict of failed) console.log(failureLine(verdict, met));
  const ran = [...outcomes.values()].every((outcome) => outcome.tests.size > 0);
  if (whole && !ran) say(`${page} stays as it is: a suite did not run`);
  else if (whole) {
    const date = new Date().toISOString().slice(0, 10);
    const text = partOf({ verdicts, limits: met, date, minutes, madeOn });
    writeFileSync(page, withPart(readFileSync(page, "utf8"), documentPartOf(provider), text));
    say(`written into ${page}`);
  }
  say(failed.length === 0 ? "every test passed" : `${failed.length} of ${verdicts.length} tests did not pass`);
  return failed.length === 0 ? 0 : 1;
}

/** The part of the page about a provider with the runtime under test: Debian's version of it, or a newer one. */
function documentPartOf(provider: Provider): string {
  const [usual, tested] =
    provider === "docker" ? ["20.10", dockerUnderTest(provider)] : (["1.6", containerdUnderTest()] as const);
  return tested === usual ? `conformance ${provider}` : `conformance ${provider} ${tested}`;
}

/** Runs one suite. One that cannot be run is what its tests came to, and the other runs all the same. */
async function outcomeOf(
  suite: SuiteName,
  names: readonly string[],
  { provider, agent, network }: ConformanceOptions,
): Promise<SuiteOutcome> {
  const { program, run } = suites[suite];
  const folder = runFolder(
    agent,
    provider,
    network === "routed" ? "" : network,
    suite,
    process.env.GRAFTLET_TEST_MARK ?? "",
  );
  try {
    const programs = await buildSuites([program, "ginkgo"], say);
    say(`${suite}: ${names.length} tests; output and reports in ${folder}`);
    const told = (line: string): void => say(`${suite}: ${line}`);
    const ended = createProgress(names.length, told);
    const outcome = await run({ provider, agent, network, names, programs, folder, ended, say: told });
    for (const trouble of outcome.trouble) say(`${suite}: ${trouble}`);
    return outcome;
  } catch (error) {
    const trouble = error instanceof Error ? error.message : String(error);
    say(`${suite}: ${trouble}`);
    return { tests: new Map(), trouble: [trouble] };
  }
}
