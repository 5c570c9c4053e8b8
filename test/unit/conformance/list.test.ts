import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseLimits } from "../../conformance/limits.ts";
import { areaOf, matching, parseList, suiteNames } from "../../conformance/list.ts";

const folder = join(import.meta.dirname, "..", "..", "conformance");
const committed = (name: string): string => readFileSync(join(folder, name), "utf8");

test("a list is read line by line; comments and empty lines are none of it", () => {
  assert.deepEqual(parseList("# of 1.36\n\ne2e\t[sig-node] A  b [Conformance]\ne2e_node\t[sig-node] A  b\n", "list"), [
    { suite: "e2e", name: "[sig-node] A  b [Conformance]" },
    { suite: "e2e_node", name: "[sig-node] A  b" },
  ]);
});

test("a line that is no test is named with its number", () => {
  for (const [line, why] of [
    ["e2e [sig-node] A", /line 2 of list is not one of e2e, e2e_node, a tab and a test's name: "e2e \[sig-node\] A"/],
    ["e2e\t", /line 2 of list is not one of/],
    ["unit\t[sig-node] A", /line 2 of list is not one of/],
    ["e2e\tfirst", /line 2 of list stands there twice/],
  ] as const)
    assert.throws(() => parseList(`e2e\tfirst\n${line}`, "list"), why);
});

test("a focus is held against the suite and the name, and has to match something", () => {
  const tests = parseList("e2e\t[sig-node] A\ne2e_node\t[sig-node] A\ne2e\t[sig-apps] B", "list");
  assert.equal(matching(tests, undefined).length, 3);
  assert.deepEqual(matching(tests, /^e2e_node .*A/), [{ suite: "e2e_node", name: "[sig-node] A" }]);
  assert.deepEqual(matching(tests, /sig-apps/), [{ suite: "e2e", name: "[sig-apps] B" }]);
  assert.throws(() => matching(tests, /sig-storage/), /FOCUS is sig-storage: no listed test matches/);
});

test("a test's area is the group that its name begins with", () => {
  assert.equal(areaOf({ suite: "e2e", name: "[sig-node] [NodeConformance] A" }), "sig-node");
  assert.equal(areaOf({ suite: "e2e", name: "A [sig-node]" }), "others");
});

test("the committed part is of the committed list, and has tests of both suites and of every area", () => {
  const list = parseList(committed("tests.txt"), "tests.txt");
  const part = parseList(committed("part.txt"), "part.txt");
  const known = new Set(list.map(({ suite, name }) => `${suite} ${name}`));
  assert.deepEqual(
    part.filter(({ suite, name }) => !known.has(`${suite} ${name}`)),
    [],
  );
  assert.deepEqual(new Set(part.map(({ suite }) => suite)), new Set(suiteNames));
  const stages = ["sig-apps", "sig-auth", "sig-cli", "sig-network", "sig-node", "sig-storage"];
  assert.deepEqual(
    stages.filter((area) => !part.some((each) => areaOf(each) === area)),
    [],
  );
});

test("the committed limits are of listed tests", () => {
  const list = parseList(committed("tests.txt"), "tests.txt");
  assert.deepEqual(Object.keys(parseLimits(committed("limits.yaml"), "limits.yaml", list)), ["cri", "docker", "ssh"]);
});
