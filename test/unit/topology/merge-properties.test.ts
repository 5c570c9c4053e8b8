import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type NumaNodes,
  countNodes,
  idsOfNodes,
  isNarrower,
  nodeSets,
  numaNodes,
} from "../../../src/lib/numa-nodes.ts";
import type { TopologyHint } from "../../../src/topology-hints.ts";
import { type IsBetter, isCloser } from "../../../src/topology/numa.ts";
import { shown } from "./hints.ts";
import { type HintList, mergeHints } from "../../../src/topology/policy.ts";

const ids = [0, 1, 2, 3];
const all = numaNodes(ids);
const distance = fc.integer({ min: 10, max: 13 });
const numa = fc
  .array(fc.array(distance, { minLength: 4, maxLength: 4 }), { minLength: 4, maxLength: 4 })
  .map((rows) => ({
    ids,
    distances: new Map(rows.map((row, id) => [id, new Map(row.map((value, to) => [to, value]))])),
  }));
const someNodes = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 15 }).map(BigInt) },
  { weight: 1, arbitrary: fc.constant(undefined) },
);
const anyHint = fc.record({ nodes: someNodes, preferred: fc.boolean() });
const anyLists = fc.array(fc.array(anyHint, { maxLength: 5 }), { maxLength: 4 });

/** Tries every combination, and keeps the better of two as the kubelet's documents say it. */
function exhaustive(lists: readonly HintList[], isBetter: IsBetter): TopologyHint {
  const needed = Math.max(0, ...lists.map((list) => countNodes(narrowest(list) ?? 0n)));
  let best: { readonly nodes: NumaNodes; readonly preferred: boolean } | undefined;
  const visit = (at: number, chosen: readonly TopologyHint[]): void => {
    const list = lists[at];
    for (const hint of list ?? []) visit(at + 1, [...chosen, hint]);
    if (list) return;
    const named = chosen.flatMap(({ nodes }) => (nodes === undefined ? [] : [nodes]));
    const nodes = named.reduce((common, one) => common & one, all);
    const preferred = new Set(named).size < 2 && chosen.every((hint) => hint.preferred);
    if (nodes !== 0n && (!best || replaces(best, { nodes, preferred }))) best = { nodes, preferred };
  };
  const replaces = (current: NonNullable<typeof best>, candidate: NonNullable<typeof best>) => {
    if (current.preferred !== candidate.preferred) return candidate.preferred;
    const [now, then] = [countNodes(current.nodes), countNodes(candidate.nodes)];
    if (current.preferred || now > needed) return isBetter(candidate.nodes, current.nodes);
    if (now === needed) return then === needed && isBetter(candidate.nodes, current.nodes);
    if (then >= needed) return then === needed;
    return then === now ? isBetter(candidate.nodes, current.nodes) : then > now;
  };
  visit(0, []);
  return best ?? { nodes: all, preferred: false };
}

function narrowest(list: HintList): NumaNodes | undefined {
  return list
    .flatMap(({ nodes }) => (nodes === undefined ? [] : [nodes]))
    .reduce<NumaNodes | undefined>(
      (least, one) => (least === undefined || isNarrower(one, least) ? one : least),
      undefined,
    );
}

test("merging gives the same hint as a search of all combinations, in any order of the lists", () => {
  fc.assert(
    fc.property(anyLists, numa, fc.boolean(), (lists, machine, closest) => {
      const isBetter = closest ? isCloser(machine) : isNarrower;
      const expected = shown(exhaustive(lists, isBetter));
      assert.equal(shown(mergeHints(lists, all, isBetter)), expected);
      assert.equal(shown(mergeHints(lists.toReversed(), all, isBetter)), expected);
    }),
    { numRuns: 2000 },
  );
});

test("lists every set of nodes once, smaller ones first", () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.integer({ min: 0, max: 63 }), { maxLength: 6 }), (some) => {
      const sets = [...nodeSets(some)];
      assert.equal(new Set(sets).size, 2 ** some.length - 1);
      assert.deepEqual(
        sets.map(countNodes),
        sets.map(countNodes).toSorted((a, b) => a - b),
      );
      assert.ok(sets.every((nodes) => idsOfNodes(nodes).every((id) => some.includes(id))));
    }),
  );
});

test("merges the hints of eight nodes and four resources quickly, despite four billion combinations", () => {
  const hints = [...nodeSets([0, 1, 2, 3, 4, 5, 6, 7])].map((nodes) => ({ nodes, preferred: false }));
  const lists = [hints, hints, hints, hints];
  assert.equal(shown(mergeHints(lists, numaNodes([0, 1, 2, 3, 4, 5, 6, 7]), isNarrower)), "0");
});
