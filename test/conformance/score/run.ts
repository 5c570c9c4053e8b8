// make conformance SCORE=1: the candidates beyond the list, with the kubelet and with graftlet. See docs/conformance.md.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildSuites } from "../../harness/tools.ts";
import { isGuest } from "../../matrix.ts";
import type { RunLimits } from "../ginkgo.ts";
import { type ListedTest, matching, parseList, type SuiteName, suiteNames, whole } from "../list.ts";
import { type ConformanceOptions, type Provider, readOptions, targetWith } from "../options.ts";
import { runFolder, runsSuite, suites } from "../suites.ts";
import { isOpen, judge } from "./judgement.ts";
import { fitGuest } from "./in-guest.ts";
import { attemptsIn, type Entry } from "./lists.ts";
import { type RunRecord, addRecords, attemptsOf, counts, nameOf, readRecords } from "./records.ts";
import { type Shard, shardsOf } from "./shards.ts";
import { attemptIn } from "./results.ts";
import {
  readCandidates,
  readEntries,
  readGuestEntries,
  readListed,
  readResults,
  readToPass,
  readWithheld,
  writeScore,
} from "./store.ts";
import { reasonAgainst } from "./withheld.ts";

const limits: RunLimits = { wholeMs: 90 * 60_000, quietMs: 16 * 60_000 };
/** Tests that run at a time where none wants the node for itself: they wait more than they work. In a guest many would wait too long,
 *  and those of a node alone restart its agent. */
function sideBySide(provider: Provider, suite: SuiteName): number {
  if (!isGuest(targetWith(provider))) return 10;
  return suite === "e2e_node" ? 1 : 4;
}
const say = (line: string): void => console.error(`${new Date().toISOString().slice(11, 16)} ${line}`);
const mark = process.env.GRAFTLET_TEST_MARK ?? "";

try {
  await score(readOptions(process.env));
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}

/** Runs what has not been decided, the suites side by side. */
async function score(options: ConformanceOptions): Promise<void> {
  const { agent, provider } = options;
  const folder = runFolder("score", agent, provider);
  mkdirSync(folder, { recursive: true });
  const records = join(folder, "records.jsonl");
  if (!existsSync(records)) addRecords(records, knownOf(options));
  const chosen = matching(among(testsOf(options), options.list), options.focus);
  say(`${chosen.length} tests with ${agent} on ${provider}; output and reports in ${folder}`);
  const run = { options, folder, records, chosen };
  await Promise.all(suiteNames.map((suite) => runRounds(run, suite)));
  writeScore(agent, provider, records);
  say("the lists, the results and docs/conformance.md are written");
}

/** Attempts that are known from other machines. */
function knownOf({ agent, provider }: ConformanceOptions): readonly RunRecord[] {
  if (agent === "graftlet") return readResults(provider).map(attemptIn);
  const ofGuest = () => readGuestEntries().map((entry): Entry => ({ ...entry, list: "guest" }));
  return (provider === "guest" ? ofGuest() : readEntries()).flatMap(attemptsIn);
}

/** Candidates for the kubelet; for graftlet, what the kubelet passes. */
function testsOf(options: ConformanceOptions): readonly ListedTest[] {
  const { agent, provider } = options;
  if (agent === "graftlet") return readToPass(provider).filter(({ suite }) => runsSuite(suite, options));
  const inGuest = provider === "guest";
  const withheld = readWithheld().filter(({ guest }) => !(guest && inGuest));
  const tests = readCandidates().filter((test) => reasonAgainst(withheld, test) === undefined);
  return inGuest ? fitGuest(tests, readEntries(), readListed(), readResults("ssh-guest")) : tests;
}

/** Tests that a file of tests names, too; all where there is no file. */
function among(tests: readonly ListedTest[], list: string | undefined): readonly ListedTest[] {
  if (list === undefined) return tests;
  const named = new Set(parseList(readFileSync(list, "utf8"), list).map(whole));
  return tests.filter((test) => named.has(whole(test)));
}

/** A command's run: its tests, and where their ends are recorded. */
interface ScoreRun {
  readonly options: ConformanceOptions;
  readonly folder: string;
  readonly records: string;
  readonly chosen: readonly ListedTest[];
}

/** One suite's tests, as often as they need it. A shard that ended early is gone on with as long as that brings anything. */
async function runRounds(run: ScoreRun, suite: SuiteName): Promise<void> {
  const { options, chosen, records } = run;
  const again = new Set((options.again === "all" ? chosen : options.again === "1" ? notPassed(run) : []).map(whole));
  const wanted = (round: number): readonly ListedTest[] => {
    const attempts = attemptsOf(readRecords(records));
    return chosen.filter((test) => {
      const made = attempts.get(whole(test)) ?? [];
      if (test.suite !== suite) return false;
      if (options.agent === "kubelet") return made.length < round && isOpen(judge(made));
      return made.length === 0 || again.has(whole(test));
    });
  };
  for (const round of options.agent === "kubelet" ? [1, 2, 3] : [1])
    for (let left = wanted(round), before = Infinity; left.length > 0 && left.length < before; left = wanted(round)) {
      before = left.length;
      const shards = shardsOf(left);
      for (const [index, shard] of shards.entries()) {
        const ran = await runShard(run, shard, `${suite}, round ${round}, shard ${index + 1} of ${shards.length}`);
        for (const test of ran) again.delete(whole(test));
      }
    }
}

/** Tests whose last attempt did not pass. */
function notPassed({ records, chosen }: ScoreRun): readonly ListedTest[] {
  const attempts = attemptsOf(readRecords(records));
  return chosen.filter((test) => attempts.get(whole(test))?.at(-1)?.state !== "passed");
}

/** Runs one shard and records each test as it ends. What keeps it from running is said, and leaves its tests as they were.
 *  @returns the tests that have ended. */
async function runShard(run: ScoreRun, shard: Shard, where: string): Promise<readonly ListedTest[]> {
  const { provider, agent } = run.options;
  const { program, run: runSuite } = suites[shard.suite];
  const names = shard.tests.map(({ name }) => name);
  const started = new Date().toISOString();
  const states = new Map<string, string>();
  const note = (name: string, state: string, rest: { readonly seconds: number; readonly says?: string }): void => {
    if (!counts({ state, ...rest }, limits.quietMs)) return;
    states.set(name, state);
    addRecords(run.records, [{ run: started, suite: shard.suite, name, state, ...rest }]);
  };
  const count = (): string => {
    const passed = [...states.values()].filter((state) => state === "passed").length;
    return `${where} (${shard.name}): ${states.size} of ${names.length}, ${passed} passed`;
  };
  const minute = setInterval(() => say(count()), 60_000);
  try {
    const outcome = await runSuite({
      provider,
      agent,
      network: "routed",
      names,
      programs: await buildSuites([program, "ginkgo"], say),
      folder: join(run.folder, [shard.name, mark].filter(Boolean).join("-")),
      processes: shard.serial ? 1 : sideBySide(provider, shard.suite),
      limits,
      ended({ title, state, seconds }) {
        const name = nameOf(title, names);
        if (name !== undefined) note(name, state, { seconds });
      },
      say: (line) => say(`${shard.suite}: ${line}`),
    });
    for (const [name, { state, ...rest }] of outcome.tests) if (names.includes(name)) note(name, state, rest);
    for (const trouble of outcome.trouble) say(`${count()}: ${trouble}`);
  } catch (error) {
    say(`${count()}: the shard failed: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    clearInterval(minute);
  }
  say(count());
  writeScore(agent, provider, run.records);
  return shard.tests.filter(({ name }) => states.has(name));
}
