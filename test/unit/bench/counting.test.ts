import assert from "node:assert/strict";
import { test } from "node:test";
import { writesIn } from "../../bench/api-writes.ts";
import { countsIn } from "../../bench/probe-counts.ts";
import { callsBetween, criCallsIn } from "../../bench/cri-calls.ts";
import { readOptions } from "../../bench/options.ts";
import { cpuSeconds } from "../../bench/usage.ts";
import type { Deed } from "../../harness/audit.ts";
import { parseExposition } from "../metrics/exposition.ts";

const deed = (
  verb: string,
  resource: string,
  name: string,
  more: Partial<Deed> & { subresource?: string } = {},
): Deed => ({
  verb,
  stage: "ResponseComplete",
  user: { username: "system:node:bench" },
  objectRef: { resource, name, ...(more.subresource && { subresource: more.subresource }) },
  ...more,
});

test("counts an agent's writes to pods, but not reads, unfinished requests or writes by others", () => {
  const deeds = [
    deed("patch", "pods", "start-1-0", { subresource: "status" }),
    deed("delete", "pods", "start-1-0"),
    deed("get", "pods", "start-1-0"),
    deed("patch", "pods", "other-0", { subresource: "status" }),
    deed("patch", "pods", "start-1-0", { user: { username: "system:kube-scheduler" } }),
    deed("watch", "pods", "start-1-0", { stage: "ResponseStarted" }),
    deed("create", "events", "start-1-0.18a"),
    deed("patch", "events", "start-1-1.18b"),
    deed("create", "serviceaccounts", "default", { subresource: "token" }),
    deed("patch", "nodes", "start-1-node", { subresource: "status" }),
    deed("update", "leases", "start-1-node"),
  ];
  assert.deepEqual(writesIn(deeds, "system:node:bench", "start-1"), { pods: 2, events: 2, tokens: 1 });
});

test("reads the numbers of CRI calls from containerd's counters", () => {
  const line = (method: string, count: number, service = "runtime.v1.RuntimeService") =>
    `grpc_server_started_total{grpc_method="${method}",grpc_service="${service}",grpc_type="unary"} ${count}`;
  const before = criCallsIn([line("Status", 3), line("Version", 3)].join("\n"));
  const after = criCallsIn(
    [
      "# TYPE grpc_server_started_total counter",
      line("Status", 5),
      line("Version", 3),
      line("ListImages", 7, "runtime.v1.ImageService"),
      line("Subscribe", 1, "containerd.services.events.v1.Events"),
      line("Status", 9).replace("started", "handled"),
    ].join("\n"),
  );
  assert.deepEqual(callsBetween(before, after), [
    { method: "ListImages", count: 7 },
    { method: "Status", count: 2 },
  ]);
});

test("parses the options of a run", () => {
  assert.deepEqual(readOptions({ ONLY: "burst,start" }), {
    kind: "cri",
    scenarios: ["start", "burst"],
    part: undefined,
    nodes: 0,
  });
  assert.deepEqual(readOptions({ PROVIDER: "ssh", ONLY: "", NODES: "" }), {
    kind: "ssh",
    scenarios: ["start", "kill", "streams"],
    part: "bench ssh",
    nodes: 0,
  });
  assert.deepEqual([readOptions({ NODES: "100" }).kind, readOptions({ NODES: "100" }).nodes], ["nodes", 100]);
  const parts = [{ NODES: "100" }, { NODES: "1000" }, { NODES: "7" }].map((env) => readOptions(env).part);
  assert.deepEqual(parts, ["bench nodes", "bench nodes 1000", undefined]);
  const ofFleets = [{}, { NODES: "1000" }, { NODES: "30" }].map(
    (env) => readOptions({ ...env, PROVIDER: "fleet" }).part,
  );
  assert.deepEqual(ofFleets, ["bench fleet", "bench fleet 1000", undefined]);
  assert.throws(() => readOptions({ ONLY: "stop" }), /ONLY names "stop": with cri it is one or more of start,delete/);
  assert.throws(() => readOptions({ PROVIDER: "podman" }), /PROVIDER is "podman": it is one of cri, docker, ssh/);
  assert.throws(() => readOptions({ NODES: "many" }), /NODES is "many": write a whole number from 1 to 1000/);
  assert.throws(() => readOptions({ NODES: "3", PROVIDER: "ssh" }), /leave out PROVIDER/);
});

test("measures the CPU time of a busy process", () => {
  const before = cpuSeconds(process.pid);
  const began = performance.now();
  while (cpuSeconds(process.pid) < before + 0.05) assert.ok(performance.now() - began < 20_000, "it did not grow");
  assert.ok(cpuSeconds(process.pid) - before <= (performance.now() - began) / 1000 + 0.05);
});

test("counts probe results of the selected pods, and those that differ from the expected result", () => {
  const line = (pod: string, container: string, result: string, value: number) =>
    `prober_probe_total{pod="${pod}",container="${container}",probe_type="Liveness",result="${result}"} ${value}`;
  const text = [
    "# HELP prober_probe_total Probes.",
    "# TYPE prober_probe_total counter",
    line("probes-0", "unfit", "failed", 30),
    line("probes-0", "unfit", "successful", 1),
    line("probes-0", "fit-1", "successful", 29),
    line("probes-1", "fit-1", "failed", 2),
    line("probes-1", "fit-2", "unknown", 4),
    line("other", "fit-1", "failed", 8),
    "",
  ].join("\n");
  assert.deepEqual(
    countsIn(parseExposition(text), (pod) => pod.startsWith("probes-")),
    { made: 66, wrong: 7 },
  );
  assert.deepEqual(
    countsIn(new Map(), () => true),
    { made: 0, wrong: 0 },
  );
});
