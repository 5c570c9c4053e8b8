import assert from "node:assert/strict";
import { test } from "node:test";
import { type NumaTopology, parseNumaTopology } from "../../../src/topology/numa.ts";
import { type AligningPolicy, mergeByPolicy } from "../../../src/topology/policy.ts";
import { provider, shown } from "./hints.ts";

/** Two groups of four nodes, far from each other; in each, two pairs. */
const eight = parseNumaTopology([
  "node/node0/distance:10 11 12 12 30 30 30 30",
  "node/node1/distance:11 10 12 12 30 30 30 30",
  "node/node2/distance:12 12 10 11 30 30 30 30",
  "node/node3/distance:12 12 11 10 30 30 30 30",
  "node/node4/distance:30 30 30 30 10 11 12 12",
  "node/node5/distance:30 30 30 30 11 10 12 12",
  "node/node6/distance:30 30 30 30 12 12 10 11",
  "node/node7/distance:30 30 30 30 12 12 13 10",
]);
const four: NumaTopology = { ids: [0, 1, 2, 3], distances: undefined };

type Providers = readonly Parameters<typeof provider>[0][];

/** `hint`, with `!` behind it if the pod is rejected. */
function merged(policy: AligningPolicy, providers: Providers, numa = four, preferClosest = false): string {
  const { hint, admit } = mergeByPolicy({ policy, preferClosest }, numa, providers.map(provider));
  return `${shown(hint)}${admit ? "" : "!"}`;
}

/** What each policy makes of the hints of providers: best-effort, restricted and single-numa-node. */
const cases: readonly (readonly [title: string, providers: Providers, bestEffort: string, single: string])[] = [
  ["no provider", [], "0123+", "any+"],
  ["a provider without hints", [{}], "0123+", "any+"],
  ["a resource without a preference", [{ a: undefined }], "0123+", "any+"],
  ["a resource that cannot be satisfied", [{ a: "" }], "0123", "any!"],
  ["a preferred hint for any node", [{ a: "any+" }], "0123+", "any+"],
  ["a hint for any node that is not preferred", [{ a: "any" }], "0123", "any!"],
  ["the same node from two providers", [{ a: "1+" }, { b: "1+" }], "1+", "1+"],
  ["one provider without a preference", [{}, { b: "1+" }], "1+", "1+"],
  ["one node in common", [{ a: "0+ 1+" }, { b: "1+" }], "1+", "1+"],
  ["several nodes in common, of which the lowest is chosen", [{ a: "0+ 1+" }, { b: "0+ 1+" }], "0+", "0+"],
  ["two resources of one provider", [{ a: "0+ 1+ 01", b: "0+ 01" }], "0+", "0+"],
  ["no node in common", [{ a: "0+" }, { b: "1+" }], "0123", "any!"],
  ["a hint that is not preferred", [{ a: "1+" }, { b: "1" }], "1", "any!"],
  ["a preferred hint that is wider than the other", [{ a: "0+" }, { b: "01+" }], "0", "any!"],
  ["preferred single nodes and a wider hint that is not preferred", [{ a: "0+ 1+" }, { b: "01" }], "0", "any!"],
  ["wide preferred hints and narrow ones that are not preferred", [{ a: "0 1 01+" }, { b: "0+ 01+" }], "01+", "any!"],
  ["several pairs of nodes", [{ a: "01+ 02+" }, { b: "01+ 02+" }], "01+", "any!"],
  ["as many nodes as the most demanding provider needs", [{ a: "0123 01" }, { b: "03" }], "03", "any!"],
  ["several sets of equal size, of which the lowest is chosen", [{ a: "0123 01" }, { b: "12 23" }], "12", "any!"],
  [
    "several lists of sets, of which the lowest common one is chosen",
    [{ a: "0123 01" }, { b: "123 12 13 23" }],
    "12",
    "any!",
  ],
];

for (const [title, providers, bestEffort, single] of cases)
  test(`each policy merges hints with ${title}`, () => {
    assert.equal(merged("best-effort", providers), bestEffort);
    assert.equal(merged("restricted", providers), bestEffort.endsWith("+") ? bestEffort : `${bestEffort}!`);
    assert.equal(merged("single-numa-node", providers), single);
  });

test("on a machine with one NUMA node, single-numa-node admits pods that fit, without an affinity", () => {
  const one: NumaTopology = { ids: [0], distances: undefined };
  assert.equal(merged("single-numa-node", [{ cpu: "0+" }, { gpu: "0+" }], one), "any+");
  assert.equal(merged("single-numa-node", [{ cpu: "" }], one), "any!");
  assert.equal(merged("restricted", [{ cpu: "0+" }], one), "0+");
});

test("prefer-closest-numa-nodes chooses the closest of equally many nodes", () => {
  const closest = (...providers: Providers) => merged("restricted", providers, eight, true);
  assert.equal(closest({ a: "04+ 02+" }, { b: "04+ 02+" }), "02+");
  assert.equal(closest({ a: "4+ 02+" }, { b: "4+ 02+" }), "4+");
  assert.equal(closest({ a: "12 23" }), "23!");
  assert.equal(closest({ a: "0123 01" }, { b: "123 12 13 23" }), "23!");
  assert.equal(closest({ a: "45+ 01+ 67+" }), "01+", "equally close: the lowest");
  assert.equal(merged("single-numa-node", [{ a: "4+ 02+" }], eight, true), "4+");
});
