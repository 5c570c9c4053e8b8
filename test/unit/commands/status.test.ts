import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { Node, NodeCondition, Pod, PodStatus } from "../../../src/objects.ts";
import { type ProcessReport, processReport, createStatusSocket } from "../../../src/process/status-socket.ts";
import { runStatus, statusLines } from "../../../src/commands/status.ts";
import { type NodeIntrospection, createReportedNode } from "../../../src/report/reported-node.ts";
import type { FleetReport } from "../../../src/report/fleet-report.ts";
import { createNotes } from "../../../src/report/notes.ts";
import { type NodeReport, nodeReport } from "../../../src/report/node-report.ts";
import type { LinkTrouble } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { silent } from "../api/fake-client.ts";

const ready: NodeCondition = {
  type: "Ready",
  status: "True",
  reason: "KubeletReady",
  message: "kubelet is posting ready status",
};
const nodeWith = (...conditions: NodeCondition[]): Node => ({ metadata: { name: "n" }, status: { conditions } });
const pod = (name: string): Pod => ({ metadata: { namespace: "shop", name, uid: name }, spec: { containers: [] } });
const waiting = (reason: string) => ({
  name: "c",
  image: "i",
  imageID: "i",
  ready: false,
  restartCount: 0,
  state: { waiting: { reason } },
});
const work = (node: NodeIntrospection["node"], pods: readonly Pod[] = []): NodeIntrospection => ({
  standalone: false,
  onChange: () => () => undefined,
  node,
  pods: () => pods,
  podCount: () => pods.length,
  summary: () => Promise.reject(new Error("nobody asks")),
});
const noNotes = { all: () => [] };
const down: LinkTrouble = { reason: "LinkDown", message: "it does not answer" };

test("reports a node that starts, runs, loses its link, and stops", () => {
  let trouble: LinkTrouble | undefined;
  let shown: Node | undefined;
  const node = createReportedNode({ name: "n", provider: "ssh" });
  const said = () => {
    const { ready: is, reason, link } = nodeReport(node, noNotes);
    return [is, reason, link?.up];
  };
  assert.deepEqual(said(), [false, "Starting", undefined]);
  node.onTargetOpened({ trouble: () => trouble, onChange: () => () => undefined });
  assert.deepEqual(said(), [false, "Starting", true]);
  node.onRunning(work(() => shown));
  assert.deepEqual(said(), [false, "NotRegistered", true]);
  shown = nodeWith(ready);
  assert.deepEqual(said(), [true, "KubeletReady", true]);
  trouble = down;
  assert.deepEqual(said(), [false, "LinkDown", false]);
  trouble = undefined;
  shown = nodeWith({ ...ready, status: "Unknown", reason: "NodeStatusUnknown" });
  assert.deepEqual(said(), [false, "NodeStatusUnknown", true]);
  node.onRunning(undefined);
  node.onTargetOpened(undefined);
  assert.deepEqual(said(), [false, "Starting", undefined]);
});

test("reports a running standalone node as ready", () => {
  const node = createReportedNode({ name: "n", provider: "cri" });
  node.onTargetOpened("local");
  node.onRunning({ ...work(() => undefined), standalone: true });
  const { ready: is, link } = nodeReport(node, noNotes);
  assert.deepEqual([is, link], [true, undefined]);
});

test("reports abnormal conditions, and why pods do not run", () => {
  const statuses: Record<string, PodStatus> = {
    web: { phase: "Running", containerStatuses: [waiting("CrashLoopBackOff")] },
    job: { phase: "Failed", reason: "Evicted" },
    slow: {
      phase: "Pending",
      initContainerStatuses: [waiting("ErrImagePull")],
      containerStatuses: [waiting("PodInitializing")],
    },
  };
  const node = createReportedNode({ name: "n", provider: "cri" });
  const condition = (type: string, status: string) => ({ type, status, reason: `${type}Reason`, message: "m" });
  const shown = nodeWith(
    ready,
    condition("MemoryPressure", "False"),
    condition("DiskPressure", "True"),
    condition("KubeletReachable", "False"),
    condition("TargetPrivileges", "True"),
    condition("PIDPressure", "Unknown"),
  );
  const pods = ["web", "job", "slow", "new"].map((name): Pod => ({ ...pod(name), status: statuses[name] ?? {} }));
  node.onRunning(work(() => shown, pods));
  const { conditions, pods: reported } = nodeReport(node, noNotes);
  assert.deepEqual(
    conditions.map(({ type }) => type),
    ["DiskPressure", "KubeletReachable"],
  );
  assert.deepEqual(
    reported.map(({ name, phase, reason }) => [name, phase, reason]),
    [
      ["web", "Running", "CrashLoopBackOff"],
      ["job", "Failed", "Evicted"],
      ["slow", "Pending", "ErrImagePull"],
      ["new", "Pending", undefined],
    ],
  );
});

test("keeps the latest warnings and errors from each node's log", () => {
  const notes = createNotes(fakeClock());
  const process = createLogger(0, { write: notes.line });
  process.warn({}, "of no node");
  const log = process.child({ node: "edge-1" });
  log.info({}, "nothing");
  log.warn({ err: new Error("one") }, "first");
  log.child({ pod: "p" }).error({}, "second");
  for (let n = 0; n < 2; n++) log.child({}).child({}).warn({ err: "three" }, "third");
  process.child({ node: "edge-2" }).error({}, "elsewhere");
  notes.event("edge-2", { kind: "Pod" }, "Warning", "R", "no line of the log");
  const told = (name: string) =>
    nodeReport(createReportedNode({ name, provider: "cri" }), notes).errors.map(({ times, message }) => [
      times,
      message,
    ]);
  assert.deepEqual(told("edge-1"), [
    [1, "first: one"],
    [1, "second"],
    [2, "third: three"],
  ]);
  for (let n = 0; n < 12; n++) log.warn({}, `more ${n}`);
  assert.deepEqual([told("edge-1").length, told("edge-1").at(-1)], [10, [1, "more 11"]]);
  assert.deepEqual(told("edge-2"), [[1, "elsewhere"]]);
  assert.deepEqual(told("edge-3"), []);
});

const shownNode: NodeReport = {
  name: "edge-1",
  provider: "ssh",
  ready: true,
  reason: "KubeletReady",
  message: "",
  link: { up: true },
  conditions: [],
  pods: [],
  errors: [],
};
const shownProcess: ProcessReport = {
  version: "0.1.0",
  kubernetes: "v1.36.0",
  pid: 7,
  since: "2026-01-01T00:00:00Z",
  at: "2026-01-01T01:02:03Z",
  nodes: [shownNode],
};

test("formats one line per node, with its problems below", () => {
  const sick: NodeReport = {
    ...shownNode,
    name: "edge-2",
    ready: false,
    ...down,
    link: { up: false, ...down },
    conditions: [{ type: "DiskPressure", reason: "KubeletHasDiskPressure", message: "full" }],
    pods: [
      { namespace: "shop", name: "a", phase: "Running" },
      { namespace: "shop", name: "b", phase: "Pending", reason: "ErrImagePull" },
    ],
    errors: [1, 2, 3, 4].map((n) => ({ at: `t${n}`, times: n === 4 ? 7 : 1, message: `m${n}` })),
  };
  assert.deepEqual(statusLines({ ...shownProcess, nodes: [shownNode, sick] }), [
    "graftlet 0.1.0 (Kubernetes v1.36.0), process 7, up 1h2m3s",
    "edge-1: ready (ssh, link up), 0 pods",
    "edge-2: NOT READY (ssh, link down), 2 pods (1 Running, 1 Pending)",
    "  LinkDown: it does not answer",
    "  DiskPressure: KubeletHasDiskPressure: full",
    "  pod shop/b: Pending, ErrImagePull",
    "  t2 m2",
    "  t3 m3",
    "  t4 m4 (7 times)",
  ]);
});

const shownFleet: FleetReport = {
  replica: "graftlet-a",
  current: true,
  replicas: [
    { name: "graftlet-a", leaving: false, machines: 1 },
    { name: "graftlet-b", leaving: true, machines: 2 },
  ],
  machines: [
    {
      name: "edge-2",
      owner: "graftlet-b",
      ready: true,
      reason: "NodeReady",
      message: "",
      address: "192.0.2.7",
      pods: 3,
    },
    { name: "edge-3", owner: "graftlet-b", ready: false, ...down, pods: 1 },
    { name: "edge-4", ready: false, reason: "Unowned", message: "no living replica serves the machine" },
  ],
};

test("lists the release's replicas and other machines apart from the process's own nodes", () => {
  assert.deepEqual(statusLines({ ...shownProcess, fleet: shownFleet }), [
    "graftlet 0.1.0 (Kubernetes v1.36.0), process 7, up 1h2m3s",
    "edge-1: ready (ssh, link up), 0 pods",
    "",
    "replicas of the release:",
    "  graftlet-a (this one): 1 machine",
    "  graftlet-b: 2 machines, shutting down",
    "",
    "other machines of the release:",
    "  edge-2: ready (served by graftlet-b), 3 pods, 192.0.2.7",
    "  edge-3: NOT READY (served by graftlet-b), 1 pod",
    "    LinkDown: it does not answer",
    "  edge-4: NOT READY (served by nobody)",
    "    Unowned: no living replica serves the machine",
  ]);
  const alone = { ...shownFleet, current: false, machines: [] };
  assert.deepEqual(statusLines({ ...shownProcess, fleet: alone }).slice(2, 4), [
    "",
    "replicas of the release, as last known because the API server does not answer:",
  ]);
});

/** A process that answers on a socket in a folder of its own. */
async function answering(t: TestContext, before?: (path: string) => Promise<void>, fleet?: FleetReport) {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-status-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "pki", "status.sock");
  const warnings: string[] = [];
  const log = { ...silent, warn: (_fields: object, message: string) => void warnings.push(message) };
  const reported = createReportedNode({ name: "n", provider: "cri" });
  reported.onRunning(work(() => nodeWith(ready)));
  const other = createReportedNode({ name: "other", provider: "cri" });
  await before?.(path);
  const stop = new AbortController();
  const onNodesChange = () => () => undefined;
  const notes = createNotes(systemClock());
  const observed = fleet && { fleet: { report: () => fleet, onChange: () => () => undefined } };
  const report = processReport({ nodes: [reported, other], onNodesChange, notes, ...observed }, systemClock());
  const running = createStatusSocket({ path, report, log }).run(stop.signal);
  t.after(() => stop.abort());
  const said: string[] = [];
  const terminal = { print: (line: string) => void said.push(line) };
  const { signal } = new AbortController();
  return {
    path,
    folder,
    said,
    warnings,
    stop: () => (stop.abort(), running),
    ask: (node?: string, output: "text" | "json" = "text") =>
      runStatus({ socket: path, node, output, terminal, signal }),
    async isUp() {
      const deadline = performance.now() + 20_000;
      const isThere = async () =>
        (await readdir(dirname(path)).catch(() => [])).join() === basename(path) && (await stat(path)).isSocket();
      while (!(await isThere())) {
        assert.ok(performance.now() < deadline, `no socket: ${warnings.join()}`);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
  };
}

test("serves the status on a private socket that is removed when the process ends", async (t) => {
  const process = await answering(t);
  await process.isUp();
  assert.equal((await stat(process.path)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(join(process.folder, "pki")), ["status.sock"]);
  assert.equal(await process.ask("n"), true);
  assert.match(process.said[1] ?? "", /^n: ready \(cri\), 0 pods$/);
  assert.equal(await process.ask(undefined, "json"), false);
  const { nodes } = JSON.parse(process.said.slice(process.said.lastIndexOf("{")).join("\n")) as ProcessReport;
  assert.deepEqual(
    nodes.map(({ name, ready: is }) => [name, is]),
    [
      ["n", true],
      ["other", false],
    ],
  );
  await assert.rejects(process.ask("none"), {
    message: '--node is "none": the process has no such node; use one of n, other',
  });
  await process.stop();
  assert.deepEqual(await readdir(join(process.folder, "pki")), []);
  await assert.rejects(process.ask(), {
    code: "unavailable",
    message: /^no graftlet responds at .*status\.sock \(.*ENOENT/,
  });
});

test("machines of other replicas do not affect the exit code, unless --node names one", async (t) => {
  const process = await answering(t, undefined, shownFleet);
  await process.isUp();
  assert.equal(await process.ask("n"), true);
  assert.equal(process.said.length, 2, "only the process and the node");
  assert.equal(await process.ask("edge-2"), true);
  assert.deepEqual(process.said.slice(-2), [
    "other machines of the release:",
    "  edge-2: ready (served by graftlet-b), 3 pods, 192.0.2.7",
  ]);
  assert.equal(await process.ask("edge-3"), false);
  await assert.rejects(process.ask("none"), { message: /use one of n, other, edge-2, edge-3, edge-4$/ });
  process.said.length = 0;
  await process.ask(undefined, "json");
  const { nodes, fleet } = JSON.parse(process.said.join("\n")) as ProcessReport;
  assert.deepEqual([nodes.map(({ name }) => name), fleet], [["n", "other"], shownFleet]);
});

test("replaces a stale socket, but not one in use; logs a warning if the socket cannot be created", async (t) => {
  const stale = await answering(t, async (path) => {
    await mkdir(join(path, ".."));
    await writeFile(path, "");
  });
  await stale.isUp();
  assert.equal(await stale.ask("n"), true);
  const second = createStatusSocket({
    path: stale.path,
    report: () => shownProcess,
    log: {
      ...silent,
      warn: (fields: object) => void stale.warnings.push((fields as { err: Error }).err.message),
    },
  });
  await second.run(never);
  assert.deepEqual(stale.warnings, ["another graftlet responds on this socket"]);
  assert.equal(await stale.ask("n"), true);
  const long = createStatusSocket({
    path: join(stale.folder, "x".repeat(120)),
    report: () => shownProcess,
    log: { ...silent, warn: () => void stale.warnings.push("long") },
  });
  await long.run(never);
  assert.equal(stale.warnings.at(-1), "long");
});

test("tolerates callers that send data or disconnect; reports an invalid response in one sentence", async (t) => {
  const process = await answering(t);
  await process.isUp();
  for (let n = 0; n < 20; n++) {
    const socket = connect(process.path, () => socket.destroy());
    socket.on("error", () => undefined);
  }
  const deadline = performance.now() + 20_000;
  let answered = false;
  while (!answered && performance.now() < deadline) answered = await process.ask("n").catch(() => false);
  assert.equal(answered, true);
  const path = join(process.folder, "other.sock");
  const server = createServer((socket) => socket.end("hello"));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(() => server.close());
  const asked = runStatus({
    socket: path,
    node: undefined,
    output: "text",
    terminal: { print: () => undefined },
    signal: never,
  });
  await assert.rejects(asked, { code: "unavailable" });
});
