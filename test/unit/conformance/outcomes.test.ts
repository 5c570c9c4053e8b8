import assert from "node:assert/strict";
import { test } from "node:test";
import { outcomesOf } from "../../conformance/outcomes.ts";
import { verdictsOn } from "../../conformance/verdicts.ts";

/** A test in ginkgo's report: its texts from the outermost in, how it ended, and why. */
const spec = (texts: readonly string[], state: string, message?: string, type = "It") => ({
  ContainerHierarchyTexts: texts.length > 1 ? texts.slice(0, -1) : null,
  LeafNodeType: type,
  LeafNodeText: texts.at(-1) ?? "",
  State: state,
  RunTime: 1_500_000_000,
  ...(message !== undefined && { Failure: { Message: message } }),
});
const report = (specs: readonly object[], reasons: readonly string[] | null = null): string =>
  JSON.stringify([{ SpecReports: specs, SpecialSuiteFailureReasons: reasons }]);

test("identifies a test by all parts of its name, and omits tests that were not selected", () => {
  const { tests, trouble } = outcomesOf(
    report([
      spec(["[sig-a] A", "", "when b", "does c"], "passed"),
      spec(["[sig-a] A", "does d"], "skipped"),
      spec(["[sig-a] A", "does e"], "skipped", "not on this machine"),
      spec(["[sig-a] A", "does f"], "timedout", "too late"),
    ]),
  );
  assert.deepEqual(
    [...tests],
    [
      ["[sig-a] A when b does c", { state: "passed", seconds: 1.5 }],
      ["[sig-a] A does e", { state: "skipped", seconds: 1.5, says: "not on this machine" }],
      ["[sig-a] A does f", { state: "timedout", seconds: 1.5, says: "too late" }],
    ],
  );
  assert.deepEqual(trouble, []);
});

test("if one of two tests with the same name fails, counts the failure, in either order", () => {
  const [passed, failed] = [spec(["A"], "passed"), spec(["A"], "failed", "no")];
  for (const specs of [
    [passed, failed],
    [failed, passed],
  ])
    assert.equal(outcomesOf(report(specs)).tests.get("A")?.state, "failed");
});

test("reports a failure that ended a suite, without counting it as a test", () => {
  const { tests, trouble } = outcomesOf(
    report([spec([""], "failed", "the node is not ready", "SynchronizedBeforeSuite")], ["Interrupted by User"]),
  );
  assert.equal(tests.size, 0);
  assert.deepEqual(trouble, ["Interrupted by User", "SynchronizedBeforeSuite: the node is not ready"]);
});

test("counts only listed tests that passed, but not skipped or missing ones", () => {
  const tests = ["A", "B", "C", "D"].map((name) => ({ suite: "e2e" as const, name }));
  const e2e = outcomesOf(
    report([
      spec(["A"], "passed"),
      spec(["B"], "failed", `\n  one ${"very ".repeat(80)}long\n two`),
      spec(["C"], "skipped", "why"),
    ]),
  );
  const verdicts = verdictsOn(tests, new Map([["e2e", e2e]]));
  assert.deepEqual(
    verdicts.map(({ passed, state }) => [passed, state]),
    [
      [true, "passed"],
      [false, "failed"],
      [false, "skipped"],
      [false, "not run"],
    ],
  );
  assert.match(verdicts[1]?.says ?? "", /^one very .{230}…$/);
  assert.equal(verdicts[2]?.says, "why");
});

test("reports why the suite of a test did not run", () => {
  const outcome = { tests: new Map(), trouble: ["kubelet ended at its start:\nand more"] };
  const [verdict] = verdictsOn([{ suite: "e2e_node", name: "A" }], new Map([["e2e_node", outcome]]));
  assert.deepEqual([verdict?.passed, verdict?.state, verdict?.says], [false, "not run", "kubelet ended at its start:"]);
});
