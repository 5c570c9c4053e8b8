import assert from "node:assert/strict";
import { appendFile, mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { guestMachines } from "../../conformance/guest-machines.ts";
import { type ListedTest, whole } from "../../conformance/list.ts";
import { type Provider, providers } from "../../conformance/options.ts";
import type { Outcome } from "../../conformance/outcomes.ts";
import { capabilityOf } from "../../conformance/score/capabilities.ts";
import { isOpen, judge } from "../../conformance/score/judgement.ts";
import {
  fitGuest,
  guestEntries,
  guestText,
  parseGuestEntries,
  passesInGuest,
} from "../../conformance/score/in-guest.ts";
import { attemptsIn, type Entry, listText, parseEntries, placeAll } from "../../conformance/score/lists.ts";
import { addRecords, attemptsOf, counts, nameOf, readRecords } from "../../conformance/score/records.ts";
import { parseResults, type Result, resultsOf, resultsText } from "../../conformance/score/results.ts";
import { shardsOf } from "../../conformance/score/shards.ts";
import {
  readCandidates,
  readEntries,
  readGuestEntries,
  readListed,
  readResults,
  readWithheld,
} from "../../conformance/score/store.ts";
import { parseList } from "../../conformance/list.ts";
import { scoreText } from "../../conformance/score/table.ts";
import { parseWithheld, reasonAgainst } from "../../conformance/score/withheld.ts";

const passed: Outcome = { state: "passed", seconds: 3 };
const failed: Outcome = { state: "failed", seconds: 4, says: "\n  no pod\nof that name" };
const skipped: Outcome = { state: "skipped", seconds: 0, says: "needs swap" };
const e2e = (name: string): ListedTest => ({ suite: "e2e", name });

test("two attempts with equal results decide a test; otherwise a third attempt decides", () => {
  for (const [attempts, judgement, open] of [
    [[], "not run", true],
    [[passed], "passed once", true],
    [[failed], "failed once", true],
    [[skipped], "skipped", false],
    [[passed, passed], "passes", false],
    [[failed, failed], "fails", false],
    [[passed, failed], "undecided", true],
    [[passed, failed, passed], "passes", false],
    [[failed, passed, failed], "fails", false],
  ] as const) {
    assert.equal(judge(attempts), judgement);
    assert.equal(isOpen(judge(attempts)), open, judgement);
  }
});

test("reads records as attempts: the last line of a run counts, and a truncated line is ignored", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-records-"));
  const file = join(folder.path, "records.jsonl");
  assert.deepEqual(readRecords(file), []);
  addRecords(file, [
    { run: "1", ...e2e("A"), state: "failed", seconds: 4 },
    { run: "1", ...e2e("A"), ...failed },
  ]);
  addRecords(file, [{ run: "2", ...e2e("A"), ...passed }]);
  addRecords(file, [{ run: "2", suite: "e2e_node", name: "A", ...skipped }]);
  await appendFile(file, '{"run":"3","sui');
  assert.deepEqual(
    [...attemptsOf(readRecords(file))],
    [
      ["e2e A", [failed, passed]],
      ["e2e_node A", [skipped]],
    ],
  );
});

test("counts an interrupted attempt only if its test was the one that hung", () => {
  assert.equal(counts({ state: "interrupted", seconds: 5 }, 60_000), false);
  assert.equal(counts({ state: "interrupted", seconds: 61 }, 60_000), true);
  assert.equal(counts(failed, 60_000), true);
});

test("maps a test's title from ginkgo to its name in the run", () => {
  const names = ["[sig-node] Pods should run", "[sig-node] Pods should run [Slow]", "[sig-node] Pods"];
  assert.equal(nameOf("[sig-node] Pods [It] should run [sig-node, NodeConformance]", names), names[0]);
  assert.equal(nameOf("[sig-node] Pods [BeforeEach] should run [Slow] [sig-node, Slow]", names), names[1]);
  assert.equal(nameOf("[sig-node] Pods  [DeferCleanup (Each)] should run", names), names[0]);
  assert.equal(nameOf("[SynchronizedBeforeSuite]", names), undefined);
});

test("shards tests by suite and kind: ordinary tests first, serial tests one at a time, proxy tests separately", () => {
  const tests = [
    e2e("[sig-node] A [Slow]"),
    e2e("[sig-node] B [Serial]"),
    e2e("[sig-storage] In-tree Volumes [Driver: local] C"),
    ...Array.from({ length: 201 }, (_, index) => e2e(`[sig-node] D ${index}`)),
    { suite: "e2e_node" as const, name: "[sig-node] E [Disruptive]" },
    { suite: "e2e_node" as const, name: "[sig-node] F [Feature:CriProxy] [Serial]" },
  ];
  const shards = shardsOf(tests);
  assert.deepEqual(
    shards.map(({ name, serial, tests: { length } }) => [name, serial, length]),
    [
      ["e2e-plain-others-1", false, 101],
      ["e2e-plain-others-2", false, 100],
      ["e2e-plain-volumes-1", false, 1],
      ["e2e-serial-others-1", true, 1],
      ["e2e_node-serial-others-1", true, 1],
      ["e2e_node-serial-proxy-1", true, 1],
      ["e2e-slow-others-1", false, 1],
    ],
  );
  assert.deepEqual(new Set(shards.flatMap(({ tests: members }) => members)), new Set(tests));
});

test("derives each candidate's list from the kubelet's attempts, and keeps the list of a candidate that was not run", () => {
  const candidates = ["A", "B", "C", "D", "E", "F", "G"].map((letter) => e2e(`[sig-node] ${letter}`));
  const attempts = new Map([
    ["e2e [sig-node] A", [passed, passed]],
    ["e2e [sig-node] B", [{ ...passed, seconds: 600 }]],
    ["e2e [sig-node] C", [failed, failed]],
    ["e2e [sig-node] D", [{ ...skipped, says: "needs cgroup v2" }]],
  ]);
  const withheld = parseWithheld("- test: ' E$'\n  reason: fills the disk", "withheld");
  const committed = parseEntries("here", "e2e\t[sig-node] F\tpods\tpassed 2 of 2\n");
  const entries = placeAll(candidates, { attempts, withheld, committed });
  assert.deepEqual(
    entries.map(({ name, list, note }) => [name.at(-1), list, note]),
    [
      ["A", "here", "passed 2 of 2"],
      ["B", "here-slow", "passed 1 of 1"],
      ["C", "others", "passed 0 of 2: no pod"],
      ["D", "guest", "cgroup v2; skipped: needs cgroup v2"],
      ["E", "guest", "not run: fills the disk"],
      ["F", "here", "passed 2 of 2"],
    ],
  );
  assert.deepEqual(
    parseEntries("others", listText("others", entries)),
    entries.filter(({ list }) => list === "others"),
  );
});

test("on another machine, derives the same lists from the attempts in the committed lists", () => {
  const committed = readEntries();
  const attempts = attemptsOf(committed.flatMap(attemptsIn));
  const ran = committed.filter(({ note }) => !note.startsWith("not run: "));
  assert.equal(attempts.size, ran.length);
  const entries = placeAll(readCandidates(), { attempts, withheld: readWithheld(), committed });
  for (const list of ["here", "here-slow", "guest", "others"] as const)
    assert.ok(listText(list, entries) === listText(list, committed), `${list}.txt changes`);
});

test("runs the kubelet in a guest for the node tests that need a guest's features or were not run here", () => {
  const node = (name: string): ListedTest => ({ suite: "e2e_node", name });
  const names = ["Swap", "A", "B", "C", "PodPidsLimit [Serial] D", "Kubelet Cgroup Manager E", "F"];
  const [nfs, lost, kept] = ["NFS", "G", "H"].map(e2e);
  const [swap, here, quota, unknown, pids, cgroups, listed] = names.map((name) => node(`[sig-node] ${name}`));
  assert.ok(swap && here && quota && unknown && pids && cgroups && listed && nfs && lost && kept);
  const entry = (test: ListedTest, list: Entry["list"], note: string): Entry => ({
    ...test,
    list,
    note,
    capability: "x",
  });
  const entries = [
    entry(swap, "guest", "swap; skipped: no swap"),
    entry(here, "here", "passed 2 of 2"),
    entry(pids, "here", "passed 2 of 2"),
    entry(quota, "guest", "a file system with quotas; skipped"),
    entry(nfs, "guest", "not run: wants the kernel's NFS server"),
  ];
  const candidates = [swap, here, quota, unknown, pids, nfs, e2e("[sig-node] Swap")];
  const results = [
    { ...lost, state: "failed", says: "" },
    { ...kept, state: "passed", says: "" },
  ];
  const fitting = fitGuest(candidates, entries, [listed, cgroups, kept, lost], results);
  assert.deepEqual(fitting, [swap, unknown, pids, nfs, cgroups, lost]);
  const attempts = new Map([[whole(swap), [failed, passed, passed]]]);
  const made = guestEntries(candidates, attempts, []);
  assert.deepEqual(
    made.map(({ name, note }) => [name, note]),
    [[swap.name, "passed 2 of 3"]],
  );
  assert.ok(made.every(passesInGuest));
  assert.deepEqual(parseGuestEntries(guestText(made)), made);
  assert.deepEqual(guestEntries(candidates, new Map(), made), made, "what another machine has found out stays");
});

test("gives tests of processors and NUMA nodes a guest with eight CPUs, and those of threads one whose cores have two", () => {
  const entry = (name: string, capability: string, note: string): Entry => ({
    suite: "e2e_node",
    name,
    list: "guest",
    capability,
    note,
  });
  const managers = "CPU and memory managers";
  const entries = [
    entry("A", "pods", "swap; skipped: no swap"),
    entry("B", "pods", "more processors; skipped: fewer than 4"),
    entry("C", managers, "cgroup v2; skipped: no cgroup v2"),
    entry("D", managers, "NUMA nodes; skipped: SMT disabled"),
    entry("E", managers, "NUMA nodes; skipped: one node"),
  ];
  const made = guestMachines(["A", "B", "C", "D", "E", "F"], entries);
  assert.deepEqual(
    made.map(({ name, names, sizes }) => [name, names, sizes.cpus, sizes.threadsPerCore]),
    [
      ["plain", ["A", "F"], undefined, undefined],
      ["numa", ["B", "C", "E"], 8, 1],
      ["threads", ["D"], 8, 2],
    ],
  );
});

test("uses graftlet's last attempt as the result, and reads the results file that it wrote", () => {
  const listed = ["A", "B", "C"].map(e2e);
  const earlier = [{ ...e2e("B"), state: "passed", says: "" }];
  const results = resultsOf(new Map([["e2e A", [passed, failed]]]), earlier, listed);
  assert.deepEqual(results, [{ ...e2e("A"), state: "failed", says: "no pod" }, ...earlier]);
  assert.deepEqual(parseResults(resultsText("cri", results), "results"), results);
});

test("counts tests that were not run separately from failures", () => {
  const candidates = ["DRA] A", "DRA] B", "DRA] C", "DRA] D"].map((name) => e2e(`[sig-node] [${name}`));
  const entries = parseEntries(
    "here",
    candidates
      .slice(0, 3)
      .map(({ name }) => `e2e\t${name}\tDRA\tpassed 1 of 1`)
      .join("\n"),
  );
  const ran = (count: number, state: string) =>
    candidates.slice(0, count).map((each) => ({ ...each, state, says: "" }));
  const results: Partial<Record<Provider, readonly Result[]>> = {
    cri: ran(2, "passed"),
    ssh: ran(3, "failed"),
    "ssh-guest": [...ran(1, "passed"), ...ran(4, "failed").slice(2)],
  };
  const inGuest = parseGuestEntries(
    ["passed 2 of 2", "passed 0 of 2: no swap"]
      .map((note, index) => `e2e_node\t[sig-node] [DRA] ${index}\tDRA\t${note}`)
      .join("\n"),
  );
  const ranInGuest = inGuest.map((entry) => ({ ...entry, state: "passed", says: "" }));
  const resultsWith = (provider: Provider) => (provider === "guest" ? ranInGuest : (results[provider] ?? []));
  const text = scoreText({ candidates, listed: [], entries, guestEntries: inGuest, results: resultsWith });
  assert.match(text, /^Of 4 candidates the kubelet passes 3 on this machine, 3 of them with one attempt so far\.$/m);
  assert.match(text, /^and 1 has not been run yet\.$/m);
  assert.match(text, /^\| DRA +\| 4 +\| 3, 1 not run +\| 2 of 3, 1 not run +\| not run +\| 0 of 3 +\|$/m);
  assert.match(text, /^- `ssh-guest`, containerd: 1 of 2 that were run \(sig-node 1 of 2\)\.$/m);
  assert.doesNotMatch(text, /ssh-docker-guest/);
  assert.match(text, /^\| DRA +\| 2 +\| 1 +\| 1 of 1 +\|$/m);
  assert.doesNotMatch(
    scoreText({ candidates, listed: [], entries, guestEntries: [], results: () => [] }),
    /in a guest/,
  );
});

test("counts a candidate that ran only in a guest as needing another machine", () => {
  const candidates = parseList("e2e_node\t[sig-node] [DRA] A\ne2e_node\t[sig-node] [DRA] B\n", "candidates");
  const guestEntries = parseGuestEntries("e2e_node\t[sig-node] [DRA] A\tDRA\tpassed 1 of 1\n");
  const text = scoreText({ candidates, listed: [], entries: [], guestEntries, results: () => [] });
  assert.match(
    text,
    /^1 need another machine, 0 it skips or fails for another reason,\nand 1 has not been run yet\.$/m,
  );
  assert.match(text, /^\| DRA +\| 2 +\| 0, 1 not run +\|/m);
  const all = scoreText({
    candidates: candidates.slice(0, 1),
    listed: [],
    entries: [],
    guestEntries,
    results: () => [],
  });
  assert.match(all, /^1 need another machine, 0 it skips or fails for another reason\.$/m);
});

test("rejects a withheld test that has no reason", () => {
  assert.throws(
    () => parseWithheld("- test: A", "withheld"),
    /^Error: entry 1 of withheld is not a test and a reason$/,
  );
  const [entry] = parseWithheld("- {test: '^e2e_node A', reason: why, guest: true}", "withheld");
  assert.ok(entry?.guest);
  assert.equal(reasonAgainst([entry], e2e("A")), undefined);
});

test("the committed lists and results name only candidates, each in one list and with its capability", () => {
  const key = ({ suite, name }: ListedTest) => `${suite} ${name}`;
  const candidates = new Set(readCandidates().map(key));
  const entries = readEntries();
  assert.equal(new Set(entries.map(key)).size, entries.length);
  for (const entry of entries) {
    assert.ok(candidates.has(key(entry)), key(entry));
    assert.equal(entry.capability, capabilityOf(entry), key(entry));
  }
  const all = new Set([...candidates, ...readListed().map(key)]);
  for (const provider of providers)
    for (const result of readResults(provider)) assert.ok(all.has(key(result)), key(result));
  for (const entry of readGuestEntries()) assert.equal(entry.capability, capabilityOf(entry), key(entry));
  assert.ok(
    readWithheld().every((entry) => readCandidates().some((test) => reasonAgainst([entry], test) !== undefined)),
  );
});
