import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { localHost } from "../../../providers/local/host.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { describeNuma, openAlignment } from "../../../src/topology/open.ts";
import { parseNumaTopology } from "../../../src/topology/numa.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { never } from "../../fakes/signals.ts";

const settings = { policy: "restricted", scope: "pod", podLevel: false, preferClosest: true, maxNodes: 8 } as const;
const open = (text: string, more: Partial<typeof settings> | { maxNodes: number } = {}) =>
  openAlignment(
    { ...settings, ...more },
    { run: async () => ({ code: 0, stdout: text, stderr: "", truncated: false }), budget: undefined },
    never,
  );

test("reads the NUMA nodes and their distances, even if node numbers are missing", () => {
  const lines = ["node/node10/distance:20 10", "node/node2/distance:10 21", "node/node2", "node/node10"];
  const { ids, distances } = parseNumaTopology(lines);
  assert.deepEqual(ids, [2, 10]);
  assert.deepEqual([distances?.get(2)?.get(10), distances?.get(10)?.get(2)], [21, 20]);
});

test("treats sockets as NUMA nodes on a kernel without NUMA, and ignores other text", () => {
  const socket = (cpu: number, id: number) => `cpu/cpu${cpu}/topology/physical_package_id:${id}`;
  assert.deepEqual(parseNumaTopology([socket(0, 0), socket(1, 1), socket(2, 1)]), {
    ids: [0, 1],
    distances: undefined,
  });
  assert.deepEqual(parseNumaTopology(["node/node99", "node/nodeX", "", "node/node1/distance:ten"]).ids, []);
  assert.equal(
    parseNumaTopology(["node/node0/distance:10 20", "node/node0"]).distances,
    undefined,
    "a node is missing",
  );
});

test("reads this machine's NUMA nodes as its kernel lists them", async () => {
  const { numa } = await openAlignment(
    { ...settings, maxNodes: 64, preferClosest: false },
    localHost({ clock: systemClock() }),
    never,
  );
  const nodes = readdirSync("/sys/devices/system/node").flatMap((name) => /^node(\d+)$/.exec(name)?.[1] ?? []);
  assert.deepEqual(
    numa.ids,
    nodes.map(Number).toSorted((a, b) => a - b),
  );
  assert.ok(numa.ids.every((id) => numa.distances?.get(id)?.get(id) !== undefined));
});

test("refuses machines that the topology manager cannot work with, in the kubelet's words", async () => {
  const refusal = (message: string) => (error: unknown) => {
    assert.ok(error instanceof TargetError);
    assert.deepEqual([error.reason, error.message], ["TopologyManager", message]);
    return true;
  };
  const nine = Array.from({ length: 9 }, (_, id) => `node/node${id}/distance:${"10 ".repeat(9).trim()}\n`).join("");
  await assert.rejects(open(nine), refusal("unsupported on machines with more than 8 NUMA Nodes"));
  const opened = await open(nine, { maxNodes: 9 });
  assert.equal(describeNuma(opened), "restricted for each pod, NUMA nodes 0,1,2,3,4,5,6,7,8");
  await assert.rejects(
    open("node/node0\n"),
    refusal("cannot discover NUMA topology: error getting NUMA distances from cadvisor"),
  );
  assert.equal((await open("node/node0/distance:10\n")).numa.ids.length, 1);
});
