import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseLimits } from "../../conformance/limits.ts";
import { areaOf, matching, parseList, suiteNames, whole } from "../../conformance/list.ts";

const folder = join(import.meta.dirname, "..", "..", "conformance");
const committed = (name: string): string => readFileSync(join(folder, name), "utf8");

test("reads a list line by line, skipping comments and empty lines", () => {
  assert.deepEqual(parseList("# of 1.36\n\ne2e\t[sig-node] A  b [Conformance]\ne2e_node\t[sig-node] A  b\n", "list"), [
    { suite: "e2e", name: "[sig-node] A b [Conformance]" },
    { suite: "e2e_node", name: "[sig-node] A b" },
  ]);
});

test("reports the number of a line that does not name a test", () => {
  for (const [line, why] of [
    ["e2e [sig-node] A", /line 2 of list is not one of e2e, e2e_node, a tab and a test's name: "e2e \[sig-node\] A"/],
    ["e2e\t", /line 2 of list is not one of/],
    ["unit\t[sig-node] A", /line 2 of list is not one of/],
    ["e2e\tfirst", /line 2 of list stands there twice/],
  ] as const)
    assert.throws(() => parseList(`e2e\tfirst\n${line}`, "list"), why);
});

test("a focus is a part of the suite and name, or a regular expression, and must match at least one test", () => {
  const tests = parseList("e2e\t[sig-node] A\ne2e_node\t[sig-node] A\ne2e\t[sig-apps] B (b)", "list");
  const names = (focus?: string) => matching(tests, focus).map(whole);
  assert.equal(names().length, 3);
  assert.deepEqual(names("[sig-apps] B (b"), ["e2e [sig-apps] B (b)"]);
  assert.deepEqual(names("[sig-node] A"), ["e2e [sig-node] A", "e2e_node [sig-node] A"]);
  assert.deepEqual(names("^e2e_node .*A"), ["e2e_node [sig-node] A"]);
  assert.throws(() => names("sig-storage"), /FOCUS is "sig-storage": no listed test has it in its name, nor matches/);
  assert.throws(() => names("(sig-node"), /FOCUS is "\(sig-node": .* and it is no regular expression/);
});

test("reads a test's area from the start of its name", () => {
  assert.equal(areaOf({ suite: "e2e", name: "[sig-node] [NodeConformance] A" }), "sig-node");
  assert.equal(areaOf({ suite: "e2e", name: "A [sig-node]" }), "others");
});

test("the committed subset belongs to the committed list, and covers both suites and every area", () => {
  const list = parseList(committed("tests.txt"), "tests.txt");
  const part = parseList(committed("part.txt"), "part.txt");
  const known = new Set(list.map(whole));
  assert.deepEqual(
    part.filter((each) => !known.has(whole(each))),
    [],
  );
  assert.deepEqual(new Set(part.map(({ suite }) => suite)), new Set(suiteNames));
  const stages = ["sig-apps", "sig-auth", "sig-cli", "sig-network", "sig-node", "sig-storage"];
  assert.deepEqual(
    stages.filter((area) => !part.some((each) => areaOf(each) === area)),
    [],
  );
});

test("the committed limits name only listed tests", () => {
  const list = parseList(committed("tests.txt"), "tests.txt");
  assert.deepEqual(Object.keys(parseLimits(committed("limits.yaml"), "limits.yaml", list)), ["cri", "docker", "ssh"]);
});
