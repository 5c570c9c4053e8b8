import assert from "node:assert/strict";
import { test } from "node:test";
import { PodSandboxState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { noTracer } from "../../../src/lib/tracer.ts";
import { createProfiles } from "../../../src/server/profiler.ts";
import { createVerbosity } from "../../../src/lib/verbosity.ts";
import { createNodeMetrics } from "../../../src/metrics/node-metrics.ts";
import { createLiveness } from "../../../src/node/liveness.ts";
import { createReadiness } from "../../../src/node/readiness.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { runOnTarget } from "../../../src/process/on-target.ts";
import type { CSINode, Node, Pod } from "../../../src/objects.ts";
import type { HostProcess } from "../../../src/seams/host.ts";
import { filePairStore } from "../../../src/certificates/pair-store.ts";
import { createSharedReads } from "../../../src/api/shared-reads.ts";
import { createSharedWatches } from "../../../src/api/shared-watches.ts";
import { createTunnelLimits } from "../../../src/service-tunnel/tunnel-limits.ts";
import { createKubeletApi } from "../../../src/server/app.ts";
import { createUnauthenticatedConnections } from "../../../src/server/unauthenticated-connections.ts";
import { createIdleTime } from "../../../src/host/root-owner.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { rivalCommand } from "../../fakes/flock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { fakeLink } from "../../fakes/link.ts";
import { furnish } from "../../fakes/machine.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, type WatchFeed, fakeClient, watchFeed } from "../api/fake-client.ts";
import { kubeletFile, nodeOf } from "../config/files.ts";

// An address needs no look-up, which would take real time.
const nodeName = "192.0.2.1";

/** An API server that knows one node and the pods given, and keeps what it is told. */
function apiServer(pods: readonly Pod[]) {
  const state = {
    node: undefined as Node | undefined,
    events: [] as string[],
    podStatus: undefined as Pod["status"],
    nodePatches: 0,
    csiNode: undefined as CSINode | undefined,
  };
  const watches = new Set<WatchFeed>();
  const merge = (status: NonNullable<Node["status"]>) => {
    if (state.node) state.node = { ...state.node, status: { ...state.node.status, ...status } };
    for (const feed of watches) feed.send("MODIFIED", state.node);
    return state.node;
  };
  const csiNode = ({ verb, body }: Call) => {
    if (verb === "create") state.csiNode = body as CSINode;
    if (!state.csiNode) throw new CodedError("not_found", "there is no CSINode");
    return state.csiNode;
  };
  const others = ({ verb, path, body }: Call, signal: AbortSignal) => {
    const ofNodes = path.startsWith("/api/v1/nodes");
    if (verb === "list") {
      const items = path === "/api/v1/pods" ? pods : ofNodes && state.node ? [state.node] : [];
      return { metadata: { resourceVersion: "1" }, items };
    }
    if (verb === "watch") {
      const feed = watchFeed(signal);
      if (ofNodes) watches.add(feed);
      return feed;
    }
    if (verb === "create" && ofNodes) {
      const { metadata, ...rest } = body as Node;
      state.node = { ...rest, metadata: { ...metadata, uid: "u1" } };
      for (const feed of watches) feed.send("ADDED", state.node);
    }
    if (verb === "create" && path.endsWith("/events")) state.events.push((body as { reason: string }).reason);
    if (verb === "patch" && ofNodes) {
      state.nodePatches += 1;
      return merge((body as Node).status ?? {});
    }
    if (verb === "patch" && path.includes("/pods/")) {
      state.podStatus = (body as Pod).status;
      return { ...pods[0], status: state.podStatus };
    }
    if (verb === "get") return ofNodes ? state.node : pods[0];
    return body;
  };
  const client = fakeClient((call, signal) => (call.path.includes("/csinodes") ? csiNode(call) : others(call, signal)));
  return { client, state };
}

/** A node on a machine elsewhere, with one pod that has a volume in memory. */
function start({ local = false, isObject = false } = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  furnish(host);
  const machine = { bootId: "life-1" };
  // Slower than everything else: whoever does not wait for it acts before.
  const bootId = async () => {
    await clock.sleep(5_000);
    return machine.bootId;
  };
  // What was spawned over the link ends with it.
  const holders: HostProcess[] = [];
  const spawn: typeof host.spawn = async (argv, signal) => {
    const process = await host.spawn(argv, signal);
    holders.push(process);
    return process;
  };
  const runtime = fakeRuntime({ clock });
  runtime.offerImage("busybox");
  const link = fakeLink();
  const pod = aPod({
    containers: [aContainer("c", { volumeMounts: [{ name: "m", mountPath: "/m" }] })],
    volumes: [{ name: "m", emptyDir: { medium: "Memory" } }],
    nodeName,
  });
  const api = apiServer([pod]);
  const file = kubeletFile("enableServer: false\nhealthzPort: 0\nfailSwapOn: false\n");
  const config = nodeOf(["--config=/k.yaml", `--hostname-override=${nodeName}`, "--node-ip=192.0.2.1"], {
    "/k.yaml": file,
  });
  const target = {
    host: { ...host, spawn, clock: { offsetMs: async () => 0, bootId } },
    runtime,
    sharing: "exclusive",
    ...(!local && { link }),
    [Symbol.asyncDispose]: async () => undefined,
  } as const;
  const log = silentLog();
  const stop = new AbortController();
  const readiness = createReadiness([nodeName], clock);
  const run = () =>
    runOnTarget(
      {
        config,
        target,
        client: api.client,
        standalone: false,
        store: () => filePairStore(config.certDir, "unused"),
        instance: "this",
        liveness: createLiveness(),
        report: createReportedNode({ name: nodeName, provider: "fake" }),
        readiness,
        kubeletApi: createKubeletApi(),
        unauthenticated: createUnauthenticatedConnections({ maxUnauthenticated: 8, maxAuthenticated: 8 }),
        tunnelLimits: createTunnelLimits(),
        watches: createSharedWatches({ clock, log }),
        reads: createSharedReads(clock),
        verbosity: createVerbosity(0),
        profiles: createProfiles(clock),
        flags: {},
        tracer: noTracer,
        metrics: createNodeMetrics({ nodeName, kubeletVersion: "v1.36.3", graftletVersion: "0", gates: [], clock }),
        ...(isObject && {
          fencingToken: { object: "uid", epoch: 1 },
          claimant: {
            object: { namespace: "edge", name: nodeName, uid: "uid" },
            takesOver: () => undefined,
            idle: createIdleTime(clock),
          },
        }),
        readOwnFile: () => Promise.reject(new Error("no files of its own")),
        clientCertificate: () => undefined,
        clock,
        log,
      },
      stop.signal,
    );
  const cut = () => {
    link.cut();
    runtime.goDown();
    for (const holder of holders) holder.kill("SIGKILL");
  };
  const mend = () => {
    runtime.comeUp();
    link.mend();
  };
  return { clock, host, machine, runtime, link, api, readiness, run, stop, cut, mend };
}

test("after its target rebooted while unreachable, restarts the node, reports the reboot, and starts its pod once, with the pod's volumes", async () => {
  const t = start();
  let end = "none";
  const first = t.run().then((how) => (end = how));
  await t.clock.advance(20_000);
  const sandboxes = () => t.runtime.listPodSandbox(undefined, never);
  const ready = async () => (await sandboxes()).filter(({ state }) => state === PodSandboxState.SANDBOX_READY);
  const [before] = await ready();
  assert.ok(before);
  assert.equal(t.host.files.mounted().length, 1);
  assert.equal(t.api.state.node?.status?.nodeInfo?.bootID, "life-1");

  t.cut();
  await t.clock.advance(60_000);
  assert.equal(t.api.state.node.status?.conditions?.find(({ type }) => type === "Ready")?.reason, "LinkDown");
  t.machine.bootId = "life-2";
  for (const { path } of t.host.files.mounted()) t.host.files.unmount(path);
  t.runtime.killSandbox(before.id);
  t.mend();
  await t.clock.advance(30_000);
  assert.equal(end, "again");
  await first;
  assert.deepEqual([await ready(), t.host.files.mounted()], [[], []], "nothing was made before it was known");

  const second = t.run();
  await t.clock.advance(30_000);
  assert.equal(t.api.state.node.status.nodeInfo?.bootID, "life-2");
  assert.ok(t.api.state.events.includes("Rebooted"), t.api.state.events.join());
  assert.deepEqual([(await ready()).length, (await sandboxes()).length, t.host.files.mounted().length], [1, 2, 1]);
  t.stop.abort();
  await t.clock.advance(30_000);
  assert.equal(await second, "stopped");
});

test("keeps a node and its pod unchanged across a lost and restored link", async () => {
  const t = start();
  const running = t.run();
  assert.match(t.readiness.unready() ?? "", /^not served yet/);
  await t.clock.advance(15_000);
  assert.equal(t.readiness.unready(), undefined, "the node knows its pods");
  await t.clock.advance(5_000);
  const made = () => t.runtime.calls.filter(({ verb }) => /^(runPod|create|start|stop|remove)/.test(verb)).length;
  const before = made();
  assert.ok(before >= 3);
  t.cut();
  await t.clock.advance(120_000);
  t.mend();
  await t.clock.advance(60_000);
  assert.equal(made(), before);
  assert.equal(t.api.state.node?.status?.conditions?.find(({ type }) => type === "Ready")?.status, "True");
  assert.ok(!t.api.state.events.includes("Rebooted"));
  t.stop.abort();
  await t.clock.advance(30_000);
  assert.equal(await running, "stopped");
  assert.equal(t.link.listeners, 0);
});

test("leaves a target that another agent claimed while it was unreachable, reports it, and continues when it is free", async () => {
  const t = start();
  const first = t.run();
  await t.clock.advance(20_000);
  const ready = () => t.api.state.node?.status?.conditions?.find(({ type }) => type === "Ready");
  const made = () => t.runtime.calls.filter(({ verb }) => /^(runPod|create|start|stop|remove)/.test(verb)).length;
  const before = made();
  t.cut();
  await t.clock.advance(5_000);
  const rival = await t.host.spawn(rivalCommand("/var/lib/kubelet/graftlet/lock"));
  t.mend();
  await t.clock.advance(60_000);
  assert.equal(await first, "again");
  const second = t.run();
  await t.clock.advance(60_000);
  assert.deepEqual([ready()?.status, ready()?.reason, made()], ["False", "RuntimeInUse", before]);
  assert.match(ready()?.message ?? "", /is in use by another graftlet/);

  await rival[Symbol.asyncDispose]();
  await t.clock.advance(60_000);
  assert.deepEqual([ready()?.status, made()], ["True", before]);
  t.stop.abort();
  await t.clock.advance(30_000);
  assert.equal(await second, "stopped");
});

test("restarts the node and reports a target that changed while it was unreachable", async () => {
  const t = start();
  const first = t.run();
  await t.clock.advance(20_000);
  const before = t.api.state.node?.status?.capacity?.["memory"];
  t.cut();
  await t.clock.advance(5_000);
  t.host.files.put("/proc/meminfo", { data: "MemTotal: 8000000 kB\nMemFree: 7000000 kB\nInactive(file): 0 kB\n" });
  t.mend();
  await t.clock.advance(60_000);
  assert.equal(await first, "again");
  const second = t.run();
  await t.clock.advance(60_000);
  assert.deepEqual([before, t.api.state.node?.status?.capacity?.["memory"]], ["4000000Ki", "8000000Ki"]);
  t.stop.abort();
  await t.clock.advance(30_000);
  await second;
});

const readyOf = (node: Node | undefined) => node?.status?.conditions?.find(({ type }) => type === "Ready");

/** What is wrong has been mended: the node becomes Ready, and stops when it is told to. */
async function heals(t: ReturnType<typeof start>, running: ReturnType<ReturnType<typeof start>["run"]>): Promise<void> {
  await t.clock.advance(30_000);
  assert.equal(readyOf(t.api.state.node)?.status, "True");
  t.stop.abort();
  await t.clock.advance(30_000);
  assert.equal(await running, "stopped");
}

test("keeps reporting a problem of a remote target in the Node's condition until it is fixed", async () => {
  const t = start();
  t.host.program("sh", () => 101);
  const running = t.run();
  await t.clock.advance(1_000);
  assert.deepEqual([readyOf(t.api.state.node)?.status, readyOf(t.api.state.node)?.reason], ["False", "RuntimeInUse"]);
  assert.match(readyOf(t.api.state.node)?.message ?? "", /--root-dir .* is in use by another graftlet/);
  assert.match(t.readiness.unready() ?? "", /^not served yet/, "the other one may still serve it");
  const before = t.api.state.nodePatches;
  await t.clock.advance(60_000);
  const said = t.api.state.nodePatches - before;
  assert.ok(said >= 2 && said <= 8, `said ${said} times in a minute`);
  assert.equal(t.runtime.calls.length, 0);
  furnish(t.host);
  await heals(t, running);
});

test("an object whose root directory is in use creates no Node, and does not touch that of another object, but lets its Pod be Ready", async () => {
  const t = start({ isObject: true });
  t.host.program("sh", () => 101);
  const ended = assert.rejects(t.run(), { code: "cancelled" });
  await t.clock.advance(60_000);
  assert.equal(t.api.state.node, undefined);
  assert.equal(t.readiness.unready(), undefined);
  const file = "/var/lib/kubelet/graftlet/node.json";
  const owner = { namespace: "other", name: nodeName, uid: "other" };
  t.host.files.put(file, { data: JSON.stringify({ version: 1, node: nodeName, object: owner, made: [] }) });
  t.api.state.node = { metadata: { name: nodeName }, spec: { providerID: "graftlet://other/r/n" } };
  const patches = t.api.state.nodePatches;
  await t.clock.advance(60_000);
  assert.equal(t.api.state.nodePatches, patches);
  // Its own Node says why.
  t.api.state.node = { metadata: { name: nodeName }, spec: { providerID: "" } };
  await t.clock.advance(60_000);
  assert.equal(readyOf(t.api.state.node)?.reason, "RootDirTaken");
  t.stop.abort();
  await ended;
});

test("retries a target that cannot be read, or that conflicts with the configuration", async () => {
  const t = start();
  t.host.program("uname", () => {
    throw new CodedError("deadline_exceeded", "uname did not end within 30000 ms and was killed");
  });
  const running = t.run();
  await t.clock.advance(1_000);
  assert.equal(readyOf(t.api.state.node)?.reason, "TargetUnreadable");
  assert.match(readyOf(t.api.state.node)?.message ?? "", /^the target cannot be read: uname did not end/);
  furnish(t.host);
  t.host.files.put("/proc/net/fib_trie", { data: "" });
  await t.clock.advance(15_000);
  assert.equal(readyOf(t.api.state.node)?.reason, "TargetAddressUnknown");
  furnish(t.host);
  await heals(t, running);
});

test("retries a target that is too slow to be locked while its link is up", async () => {
  const t = start();
  const { readFile } = t.host.fs;
  const slow = () => Promise.reject(new CodedError("deadline_exceeded", "no answer within 30000 ms"));
  Object.assign(t.host.fs, { readFile: slow });
  const running = t.run();
  await t.clock.advance(1_000);
  assert.equal(readyOf(t.api.state.node)?.reason, "TargetUnreadable");
  Object.assign(t.host.fs, { readFile });
  await heals(t, running);
});

test("fails with the error's message if the target is the local machine", async () => {
  const t = start({ local: true });
  t.host.program("sh", () => 101);
  await assert.rejects(t.run(), { code: "failed_precondition", message: /RuntimeInUse/ });
});
