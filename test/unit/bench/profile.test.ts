import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { heapSizes } from "../../bench/profile/heap-sizes.ts";
import { cpuTable, waitTable } from "../../bench/profile/report.ts";
import { concurrency, runtimeCalls } from "../../bench/profile/runtime-calls.ts";

const logged = (second: number, message: string) =>
  `time="2026-11-28T10:00:0${second}.5Z" level=info msg=${JSON.stringify(message)}`;
const box = (name: string) => `RunPodSandbox for &PodSandboxMetadata{Name:${name},Uid:u,Namespace:n,Attempt:0,}`;
const at = (second: number) => Date.parse(`2026-11-28T10:00:0${second}.5Z`);

test("finds each pod's calls in containerd's log, except those that did not finish", () => {
  const log = [
    logged(0, box("a")),
    logged(1, box("b")),
    logged(2, `${box("a")} returns sandbox id "aa"`),
    logged(3, 'CreateContainer within sandbox "aa" for container &ContainerMetadata{Name:c,Attempt:0,}'),
    logged(
      4,
      'CreateContainer within sandbox "aa" for &ContainerMetadata{Name:c,Attempt:0,} returns container id "cc"',
    ),
    logged(4, 'StartContainer for "cc"'),
    logged(5, 'StartContainer for "cc" returns successfully'),
    "no line of a log",
    logged(6, 'StopContainer for "unknown" returns successfully'),
  ].join("\n");
  assert.deepEqual(runtimeCalls(log), [
    { verb: "RunPodSandbox", pod: "a", began: at(0), ended: at(2) },
    { verb: "CreateContainer", pod: "a", began: at(3), ended: at(4) },
    { verb: "StartContainer", pod: "a", began: at(4), ended: at(5) },
  ]);
});

test("computes the average and maximum number of calls in progress", () => {
  const call = (began: number, ended: number) => ({ verb: "v", pod: "p", began, ended });
  assert.deepEqual(concurrency([call(0, 10), call(5, 10), call(10, 20)]), { mean: 1.25, most: 2 });
});

test("divides a pod's start time into its calls and the waits before them", () => {
  const calls = [
    { verb: "RunPodSandbox", pod: "a", began: 110, ended: 150 },
    { verb: "RunPodSandbox", pod: "another", began: 120, ended: 900 },
  ];
  const table = waitTable([{ name: "a", asked: 100, shown: 157 }], calls);
  const rows = table
    .split("\n")
    .slice(2)
    .map((row) =>
      row
        .split("|")
        .slice(1, 3)
        .map((cell) => cell.trim()),
    );
  assert.deepEqual(rows, [
    ["before RunPodSandbox", "10"],
    ["RunPodSandbox", "40"],
    ["until the API server shows it", "7"],
    ["in all", "57"],
  ]);
});

test("shows each role's total CPU time, and its share of the cores in each time slice", () => {
  const slices = Array.from({ length: 8 }, (_, index) => ({
    at: (index + 1) * 100,
    used: new Map([["agent", index === 0 ? 100 : 0]]),
  }));
  const [, , agent = ""] = cpuTable(slices, 2).split("\n");
  const cells = agent.split("|").map((cell) => cell.trim());
  assert.deepEqual(cells.slice(1, 6), ["agent", "100", "6 %", "50 %", "0 %"]);
});

test("sums the bytes in a heap snapshot by type, and objects by constructor", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-heap-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "a.heapsnapshot");
  const snapshot = {
    snapshot: {
      meta: { node_fields: ["type", "name", "id", "self_size"], node_types: [["string", "object"], "", "", ""] },
    },
    nodes: [0, 0, 1, 10, 1, 1, 2, 20, 1, 1, 3, 30],
    strings: ["text", "Map"],
  };
  writeFileSync(file, JSON.stringify(snapshot));
  assert.deepEqual(
    [...heapSizes(file)],
    [
      ["string", 10],
      ["object Map", 50],
    ],
  );
});
