import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMemoryTopology, readMemoryTopology } from "../../../src/memory-manager/numa-memory.ts";
import { never } from "../../fakes/signals.ts";

const meminfo = (id: number, kib: number) => `node${id}/meminfo:Node ${id} MemTotal:       ${kib} kB`;

test("reads memory and huge pages of NUMA nodes", () => {
  assert.deepEqual(
    parseMemoryTopology([
      meminfo(1, 2048),
      meminfo(0, 4096),
      "node0/hugepages/hugepages-2048kB/nr_hugepages:3",
      "node0/hugepages/hugepages-1048576kB/nr_hugepages:0",
      "node1/hugepages/hugepages-64kB/nr_hugepages:2",
    ]),
    [
      {
        id: 0,
        bytes: 4 * 2 ** 20,
        hugePages: new Map([
          ["hugepages-2Mi", 6 * 2 ** 20],
          ["hugepages-1Gi", 0],
        ]),
      },
      { id: 1, bytes: 2 * 2 ** 20, hugePages: new Map([["hugepages-64Ki", 128 * 1024]]) },
    ],
  );
});

test("skips malformed lines", () => {
  const lines = ["", "node9999/meminfo:Node 9999 MemTotal: 1 kB", "node0/meminfo:Node 0 MemTotal: -1 kB", "node0/x:1"];
  assert.deepEqual(parseMemoryTopology(lines), []);
});

test("rejects a machine without NUMA memory or with too many nodes to search", async () => {
  const read = (lines: readonly string[]) =>
    readMemoryTopology(
      { run: async () => ({ code: 0, stdout: lines.join("\n"), stderr: "", truncated: false }) },
      never,
    );
  assert.equal((await read([meminfo(0, 1)])).length, 1);
  await assert.rejects(read([]), /does not report the memory of its NUMA nodes/);
  const nine = Array.from({ length: 9 }, (_, id) => meminfo(id, 1));
  await assert.rejects(read(nine), /supports up to 8 NUMA nodes, but the machine has 9/);
});
