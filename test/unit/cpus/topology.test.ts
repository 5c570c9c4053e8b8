import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTopology } from "../../../src/cpus/topology.ts";

/** Lines of the files of a machine's CPUs. */
const linesOf = (files: Readonly<Record<string, string | number>>) =>
  Object.entries(files).map(([path, text]) => `${path}:${text}`);
const cpu = (id: number, coreId: number, socket: number) => ({
  [`cpu/cpu${id}/topology/core_id`]: coreId,
  [`cpu/cpu${id}/topology/physical_package_id`]: socket,
});

test("reads cores, sockets and NUMA nodes; a core is named after its first CPU", () => {
  const { cpus, count } = parseTopology(
    linesOf({
      "cpu/online": "0-3",
      "node/node0/cpulist": "0,2",
      "node/node1/cpulist": "1,3",
      ...cpu(0, 7, 0),
      ...cpu(1, 7, 1),
      ...cpu(2, 7, 0),
      ...cpu(3, 7, 1),
    }),
  );
  assert.deepEqual(cpus, [
    { id: 0, core: 0, socket: 0, numaNode: 0, cache: 0 },
    { id: 1, core: 1, socket: 1, numaNode: 1, cache: 1 },
    { id: 2, core: 0, socket: 0, numaNode: 0, cache: 0 },
    { id: 3, core: 1, socket: 1, numaNode: 1, cache: 1 },
  ]);
  assert.deepEqual(count, { numaNode: 2, socket: 2, cache: 2, core: 2 });
});

test("omits offline CPUs, and treats sockets as NUMA nodes on a kernel without NUMA", () => {
  const { cpus } = parseTopology(linesOf({ "cpu/online": "0,2", ...cpu(0, 0, 0), ...cpu(1, 1, 0), ...cpu(2, 0, 1) }));
  assert.deepEqual(
    cpus.map(({ id, numaNode }) => [id, numaNode]),
    [
      [0, 0],
      [2, 1],
    ],
  );
});

test("distinguishes an L3 cache shared by part of a NUMA node from one shared by the whole node", () => {
  const cache = (id: number, cacheId: number, shared: string) => ({
    [`cpu/cpu${id}/cache/index2/id`]: id,
    [`cpu/cpu${id}/cache/index2/level`]: 2,
    [`cpu/cpu${id}/cache/index2/shared_cpu_list`]: id,
    [`cpu/cpu${id}/cache/index3/id`]: cacheId,
    [`cpu/cpu${id}/cache/index3/level`]: 3,
    [`cpu/cpu${id}/cache/index3/shared_cpu_list`]: shared,
  });
  const cores = { "node/node0/cpulist": "0-3", ...cpu(0, 0, 5), ...cpu(1, 1, 5), ...cpu(2, 2, 5), ...cpu(3, 3, 5) };
  const split = [cache(0, 8, "0-1"), cache(1, 8, "0-1"), cache(2, 9, "2-3"), cache(3, 9, "2-3")];
  const caches = (files: Readonly<Record<string, string | number>>) =>
    parseTopology(linesOf({ ...cores, ...files })).cpus.map((each) => each.cache);
  assert.deepEqual(caches(Object.fromEntries(split.flatMap((each) => Object.entries(each)))), [8, 8, 9, 9]);
  const one = [0, 1, 2, 3].map((id) => cache(id, 8, "0-3"));
  assert.deepEqual(caches(Object.fromEntries(one.flatMap((each) => Object.entries(each)))), [5, 5, 5, 5]);
});

test("ignores text that does not describe a CPU", () => {
  assert.deepEqual(
    parseTopology(["", "cpu/online:0-", "cpu/cpu0/topology/core_id:x", "node/node0/cpulist:0-99999999"]).cpus,
    [],
  );
});
