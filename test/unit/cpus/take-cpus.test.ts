import assert from "node:assert/strict";
import { test } from "node:test";
import { distributeCpus } from "../../../src/cpus/distribute-cpus.ts";
import { takeCpus } from "../../../src/cpus/take-cpus.ts";
import type { CpuTopology } from "../../../src/cpus/topology.ts";
import { formatCpus } from "../../../src/lib/cpu-set.ts";
import { cpus, machine, noOptions } from "./machines.ts";

/** Two sockets with a NUMA node each; cores 0-2 and 3-5, second threads 6-8 and 9-11. */
const dual = machine({ sockets: 2, cores: 3, threads: 2 });
const take = (topology: CpuTopology, taken: readonly number[], count: number, more: object = {}) =>
  formatCpus(takeCpus(topology, topology.ids.difference(cpus(...taken)), count, { ...noOptions, ...more }));

test("takes whole sockets, then whole cores, then single threads of partly used cores", () => {
  assert.equal(take(dual, [], 6), "0-2,6-8");
  assert.equal(take(dual, [], 2), "0,6");
  assert.equal(take(dual, [6], 2), "1,7");
  assert.equal(take(dual, [6], 1), "0");
  assert.equal(take(dual, [6], 8), "1,3-5,7,9-11");
});

test("prefers the socket with the fewest free CPUs, to keep large free areas intact", () => {
  assert.equal(take(dual, [3, 9], 2), "4,10");
});

test("takes whole NUMA nodes if a socket has several", () => {
  const nodes = machine({ sockets: 2, nodes: 2, cores: 2 });
  assert.equal(take(nodes, [0], 2), "2-3");
  assert.equal(take(nodes, [0], 4), "4-7");
});

test("with distribute-cpus-across-cores, takes CPUs on different cores", () => {
  assert.equal(take(dual, [], 3, { spreadAcrossCores: true }), "0-2");
  assert.equal(take(dual, [0], 3, { spreadAcrossCores: true }), "1-2,6");
});

test("with prefer-align-cpus-by-uncorecache, takes CPUs that share one L3 cache if possible", () => {
  const caches = machine({ caches: 3, cores: 4 });
  assert.equal(take(caches, [0, 1], 3), "2-4");
  assert.equal(take(caches, [0, 1], 3, { alignCaches: true }), "4-6");
  assert.equal(take(caches, [0, 1], 4, { alignCaches: true }), "4-7");
  assert.equal(take(caches, [0, 4, 8], 5, { alignCaches: true }), "1-3,5-6");
  const threads = machine({ caches: 2, cores: 2, threads: 2 });
  assert.equal(take(threads, [0], 3, { alignCaches: true }), "1,4-5");
});

test("refuses more CPUs than are available", () => {
  assert.throws(
    () => take(dual, [0], 12),
    /^Error: not enough cpus available to satisfy request: requested=12, available=11$/,
  );
  assert.equal(take(dual, [], 0), "");
});

const distribute = (topology: CpuTopology, taken: readonly number[], count: number, groupSize = 1) =>
  formatCpus(distributeCpus(topology, topology.ids.difference(cpus(...taken)), count, { ...noOptions, groupSize }));

test("with distribute-cpus-across-numa, takes the same number of CPUs on each NUMA node that it needs", () => {
  const nodes = machine({ sockets: 2, nodes: 2, cores: 4 });
  assert.equal(distribute(nodes, [], 4), "0-3", "one node suffices");
  assert.equal(distribute(nodes, [], 6), "0-2,4-6");
  assert.equal(distribute(nodes, [], 7), "0-6");
  assert.equal(distribute(nodes, [0, 1, 2, 4, 5, 6], 6), "8-10,12-14");
});

test("with full-pcpus-only, distributes whole cores", () => {
  assert.equal(distribute(dual, [], 8, 2), "0-1,3-4,6-7,9-10");
  assert.equal(distribute(dual, [], 10, 2), "0-4,6-10");
});
