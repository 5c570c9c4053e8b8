import assert from "node:assert/strict";
import { test } from "node:test";
import { filePairStore } from "../../../src/certificates/pair-store.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { noTracer } from "../../../src/lib/tracer.ts";
import { createProfiles } from "../../../src/server/profiler.ts";
import { createVerbosity } from "../../../src/lib/verbosity.ts";
import { createNodeMetrics } from "../../../src/metrics/node-metrics.ts";
import { createLiveness } from "../../../src/node/liveness.ts";
import { createReadiness } from "../../../src/node/readiness.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import type { CoreEvent, Node, Pod, PodCondition, PodStatus, Resources } from "../../../src/objects.ts";
import { runOnTarget } from "../../../src/process/on-target.ts";
import { createSharedReads } from "../../../src/api/shared-reads.ts";
import { createSharedWatches } from "../../../src/api/shared-watches.ts";
import { createTunnelLimits } from "../../../src/service-tunnel/tunnel-limits.ts";
import { createKubeletApi } from "../../../src/server/app.ts";
import { createUnauthenticatedConnections } from "../../../src/server/unauthenticated-connections.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { lockingShell } from "../../fakes/flock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { furnish } from "../../fakes/machine.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";
import { type WatchFeed, fakeClient, watchFeed } from "../api/fake-client.ts";
import { kubeletFile, nodeOf } from "../config/files.ts";

// A whole node on a machine in memory, and what it tells an API server of the resizes of a pod.

const nodeName = "192.0.2.1";
const has = (cpu: string, memory: string): Resources => ({ requests: { cpu, memory }, limits: { cpu, memory } });

/** Conditions by type, as a strategic merge does it. */
function merged(old: PodStatus = {}, patch: PodStatus): PodStatus {
  const conditions = new Map((old.conditions ?? []).map((one) => [one.type, one] as const));
  for (const one of (patch.conditions ?? []) as (PodCondition & { $patch?: string })[])
    if (one.$patch === "delete") conditions.delete(one.type);
    else conditions.set(one.type, { ...conditions.get(one.type), ...one });
  // Addresses and amounts are replaced as a whole.
  const whole = <T extends object>(list: T[] | undefined) => list && { list: list.filter((one) => !("$patch" in one)) };
  const amounts = Object.fromEntries(
    (["resources", "allocatedResources"] as const).flatMap((field) => {
      const { $patch: _, ...list } = (patch[field] ?? {}) as { $patch?: string };
      return patch[field] ? [[field, list] as const] : [];
    }),
  );
  const [hosts, ips] = [whole(patch.hostIPs), whole(patch.podIPs)];
  const addresses = { ...(hosts && { hostIPs: hosts.list }), ...(ips && { podIPs: ips.list }) };
  return { ...old, ...patch, ...addresses, ...amounts, conditions: [...conditions.values()] };
}

/** An API server with one pod, which keeps every status that it was shown. */
function apiServer(first: Pod) {
  let pod: Pod = { ...first, metadata: { ...first.metadata, generation: 1, resourceVersion: "1" } };
  let node: Node | undefined;
  const shown: PodStatus[] = [];
  const events: string[] = [];
  const feeds = new Map<WatchFeed, string>();
  const tell = (path: string, object: object) => {
    for (const [feed, of] of feeds) if (of === path) feed.send("MODIFIED", object);
  };
  const change = (more: Partial<Pod>) => {
    const resourceVersion = String(Number(pod.metadata.resourceVersion) + 1);
    pod = { ...pod, ...more, metadata: { ...pod.metadata, ...more.metadata, resourceVersion } };
    tell("/api/v1/pods", pod);
    return pod;
  };
  const client = fakeClient(({ verb, path, body }, signal) => {
    const ofNodes = path.startsWith("/api/v1/nodes");
    if (verb === "list") {
      const items = path === "/api/v1/pods" ? [pod] : ofNodes && node ? [node] : [];
      return { metadata: { resourceVersion: pod.metadata.resourceVersion }, items };
    }
    if (verb === "watch") {
      const feed = watchFeed(signal);
      feeds.set(feed, path);
      return feed;
    }
    if (verb === "create" && path.endsWith("/events")) {
      const { reason, message } = body as CoreEvent;
      events.push(`${reason} ${message}`);
    }
    if (ofNodes && (verb === "create" || verb === "patch")) {
      const { status, ...rest } = body as Node;
      node = { ...node, ...(verb === "create" && rest), status: { ...node?.status, ...status } } as Node;
      tell("/api/v1/nodes", node);
    }
    if (ofNodes) return node;
    if (verb === "patch" && path.includes("/pods/")) {
      const status = merged(pod.status, (body as Pod).status ?? {});
      shown.push(status);
      return change({ status });
    }
    return verb === "get" ? pod : body;
  });
  /** Asks for other resources, by container and for the pod as a whole. */
  const resize = (wish: Readonly<Record<string, Resources>>, whole?: Resources) => {
    const containers = pod.spec.containers.map((each) => ({
      ...each,
      resources: wish[each.name] ?? each.resources ?? {},
    }));
    const metadata = { ...pod.metadata, generation: (pod.metadata.generation ?? 0) + 1 };
    change({ spec: { ...pod.spec, containers, ...(whole && { resources: whole }) }, metadata });
  };
  return { client, events, shown, resize, pod: () => pod };
}

function start(pod: Pod) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  furnish(host);
  const lock = lockingShell();
  const used = { bytes: 4096 };
  const group = () =>
    host.files.tree("/sys/fs/cgroup/kubepods").find((path) => path.endsWith("/poduid-1")) ?? assert.fail("no cgroup");
  const own = (file: string) => host.files.text(`${group()}/${file}`);
  const readable = (file: string) => host.files.tree(group()).includes(`${group()}/${file}`);
  host.program("sh", async (args, io) => {
    if (!args.join(" ").includes("tail -v")) return lock(args, io);
    const path = group().replace("/sys/fs/cgroup", ".");
    const memory = { "memory.current": String(used.bytes), "memory.stat": "inactive_file 0" };
    const tell = (folder: string, files: Readonly<Record<string, string>>) => {
      for (const [name, text] of Object.entries(files)) io.stdout.write(`==> ${folder}/${name} <==\n${text}\n\n`);
    };
    tell("/proc", { meminfo: "MemTotal: 1 kB" });
    const limits = ["cpu.max", "cpu.weight", "memory.max"].filter(readable).map((file) => [file, own(file)] as const);
    tell(path, { "cpu.stat": "usage_usec 1", ...memory, ...Object.fromEntries(limits) });
    for (const { id } of await runtime.listContainers(undefined, never)) tell(`${path}/${id}`, memory);
    return 0;
  });
  const runtime = fakeRuntime({ clock });
  runtime.offerImage("busybox");
  const api = apiServer(pod);
  const config = nodeOf(["--config=/k.yaml", `--hostname-override=${nodeName}`, "--node-ip=192.0.2.1"], {
    "/k.yaml": kubeletFile("enableServer: false\nhealthzPort: 0\nfailSwapOn: false\n"),
  });
  const target = { host, runtime, sharing: "exclusive", [Symbol.asyncDispose]: async () => undefined } as const;
  let stop = new AbortController();
  const run = () => {
    stop = new AbortController();
    const metrics = createNodeMetrics({ nodeName, kubeletVersion: "v1.36.3", graftletVersion: "0", gates: [], clock });
    const store = () => filePairStore(config.certDir, "unused");
    const log = silentLog();
    const { client } = api;
    return runOnTarget(
      {
        config,
        target,
        client,
        standalone: false,
        store,
        instance: "this",
        readiness: createReadiness([nodeName], clock),
        liveness: createLiveness(),
        report: createReportedNode({ name: nodeName, provider: "fake" }),
        kubeletApi: createKubeletApi(),
        unauthenticated: createUnauthenticatedConnections({ maxUnauthenticated: 8, maxAuthenticated: 8 }),
        tunnelLimits: createTunnelLimits(),
        watches: createSharedWatches({ clock, log }),
        reads: createSharedReads(clock),
        verbosity: createVerbosity(0),
        profiles: createProfiles(clock),
        flags: {},
        tracer: noTracer,
        metrics,
        readOwnFile: () => Promise.reject(new Error("no files of its own")),
        clientCertificate: () => undefined,
        clock,
        log,
      },
      stop.signal,
    );
  };
  const halt = async (running: Promise<unknown>) => {
    stop.abort();
    await clock.advance(30_000);
    await running;
  };
  const containers = async () =>
    (await runtime.listContainers(undefined, never)).map(
      ({ metadata, state }) => `${metadata?.name}/${metadata?.attempt} ${stateName(state)}`,
    );
  return { clock, host, runtime, api, own, used, run, halt, containers };
}

function stateName(state: ContainerState): string {
  return state === ContainerState.CONTAINER_RUNNING ? "running" : "exited";
}

const twoContainers = (policy = "NotRequired") =>
  aPod({
    nodeName,
    containers: [
      aContainer("a", {
        command: ["sleep", "infinity"],
        resources: has("200m", "64Mi"),
        resizePolicy: [{ resourceName: "memory", restartPolicy: policy }],
      }),
      aContainer("b", { command: ["sleep", "infinity"], resources: has("100m", "32Mi") }),
    ],
  });

const resizeConditions = ({ conditions = [] }: PodStatus) =>
  conditions
    .filter(({ type }) => type.startsWith("PodResize"))
    .map(({ type, reason = "" }) => `${type} ${reason}`.trim());
const resourcesIn = ({ containerStatuses = [] }: PodStatus) => containerStatuses.map(({ resources }) => resources);

test("the status shows the requested resources once the resize conditions are gone", async () => {
  const t = start(twoContainers());
  const node = t.run();
  await t.clock.advance(20_000);
  assert.deepEqual(await t.containers(), [`a/0 running`, `b/0 running`]);
  assert.deepEqual([t.own("cpu.max"), t.own("memory.max")], ["30000 100000", String(96 * 2 ** 20)]);

  const wish = { a: has("300m", "48Mi"), b: has("150m", "64Mi") };
  t.api.shown.length = 0;
  t.api.resize(wish);
  await t.clock.advance(1_000);
  assert.deepEqual(t.api.shown.map(resizeConditions), [["PodResizeInProgress"], []]);
  for (const status of t.api.shown) {
    if (resizeConditions(status).length > 0) continue;
    assert.deepEqual([status.observedGeneration, resourcesIn(status)], [2, [wish.a, wish.b]]);
    assert.deepEqual(
      status.containerStatuses?.map(({ allocatedResources }) => allocatedResources),
      [wish.a.requests, wish.b.requests],
    );
  }
  assert.deepEqual([t.own("cpu.max"), t.own("memory.max")], ["45000 100000", String(112 * 2 ** 20)]);
  assert.deepEqual(await t.containers(), [`a/0 running`, `b/0 running`]);
  assert.deepEqual(
    t.api.events.map((text) => text.split(":")[0]).filter((text) => text?.startsWith("Resize")),
    ["ResizeStarted Pod resize started", "ResizeCompleted Pod resize completed"],
  );
  await t.halt(node);
});

test("restarts only the container whose resizePolicy requires it", async () => {
  const t = start(twoContainers("RestartContainer"));
  const node = t.run();
  await t.clock.advance(20_000);
  t.api.resize({ a: has("200m", "80Mi") });
  await t.clock.advance(60_000);
  assert.deepEqual((await t.containers()).sort(), ["a/0 exited", `a/1 running`, `b/0 running`]);
  const { status = {} } = t.api.pod();
  assert.deepEqual([resizeConditions(status), resourcesIn(status)[0]], [[], has("200m", "80Mi")]);
  assert.equal(t.own("memory.max"), String(112 * 2 ** 20));
  assert.equal(t.runtime.calls.filter(({ verb }) => verb === "updateContainerResources").length, 0);
  await t.halt(node);
});

test("defers a resize that does not fit, even across a restart, and keeps the actuated resources", async () => {
  const t = start(twoContainers());
  const first = t.run();
  await t.clock.advance(20_000);
  t.api.resize({ a: has("250m", "64Mi") });
  await t.clock.advance(1_000);
  t.api.resize({ a: has("100", "64Mi") });
  await t.clock.advance(1_000);
  const deferred = () => resizeConditions(t.api.pod().status ?? {});
  assert.deepEqual(deferred(), ["PodResizePending Deferred"]);
  await t.halt(first);

  const calls = t.runtime.calls.length;
  t.api.resize({ a: has("200", "64Mi") });
  const second = t.run();
  await t.clock.advance(30_000);
  const { status = {} } = t.api.pod();
  assert.deepEqual(
    [deferred(), status.phase, status.observedGeneration],
    [["PodResizePending Deferred"], "Running", 4],
  );
  assert.deepEqual(resourcesIn(status), [has("250m", "64Mi"), has("100m", "32Mi")]);
  assert.deepEqual(
    t.runtime.calls.slice(calls).filter(({ verb }) => /^(create|start|stop|remove|update(?!Runtime))/.test(verb)),
    [],
  );
  t.api.resize({ a: has("100m", "64Mi") });
  await t.clock.advance(1_000);
  assert.deepEqual([deferred(), resourcesIn(t.api.pod().status ?? {})[0]], [[], has("100m", "64Mi")]);
  await t.halt(second);
});

test("does not decrease a memory limit below the usage until the usage drops", async () => {
  const t = start(twoContainers());
  const node = t.run();
  await t.clock.advance(20_000);
  t.used.bytes = 80 * 2 ** 20;
  t.api.resize({ a: has("200m", "16Mi") });
  await t.clock.advance(1_000);
  const { status = {} } = t.api.pod();
  const stuck = status.conditions?.find(({ type }) => type === "PodResizeInProgress");
  assert.equal(stuck?.reason, "Error");
  assert.match(
    stuck?.message ?? "",
    /^cannot decrease memory limits: \[?attempting to set pod memory limit \(50331648\) below/,
  );
  assert.deepEqual([t.own("memory.max"), resourcesIn(status)[0]], [String(96 * 2 ** 20), has("200m", "64Mi")]);
  t.used.bytes = 4096;
  await t.clock.advance(30_000);
  const after = t.api.pod().status ?? {};
  assert.deepEqual(
    [resizeConditions(after), t.own("memory.max"), resourcesIn(after)[0]],
    [[], String(48 * 2 ** 20), has("200m", "16Mi")],
  );
  await t.halt(node);
});

test("applies pod-level resources to containers that set none, and reports them once actuated", async () => {
  const containers = [aContainer("a", { command: ["sleep", "infinity"], resources: { requests: { cpu: "10m" } } })];
  const t = start(aPod({ nodeName, containers, resources: has("100m", "64Mi") }));
  const node = t.run();
  await t.clock.advance(20_000);
  t.api.shown.length = 0;
  t.api.resize({}, has("200m", "96Mi"));
  await t.clock.advance(1_000);
  assert.deepEqual(
    t.api.shown.map((status) => [...resizeConditions(status), status.resources]),
    [["PodResizeInProgress", has("100m", "64Mi")], [has("200m", "96Mi")]],
  );
  assert.deepEqual(t.api.pod().status?.allocatedResources, { cpu: "200m", memory: "96Mi" });
  assert.deepEqual([t.own("cpu.max"), t.own("memory.max")], ["20000 100000", String(96 * 2 ** 20)]);
  const [a] = await t.runtime.listContainers(undefined, never);
  const { status } = await t.runtime.containerStatus(a?.id ?? "", never);
  const { cpuQuota, memoryLimitInBytes } = status?.resources?.linux ?? {};
  assert.deepEqual([cpuQuota, memoryLimitInBytes], [20_000n, BigInt(96 * 2 ** 20)]);
  await t.halt(node);
});

test("reports added limits and requests, and amounts below the runtime's precision, as requested", async () => {
  const c = (name: string, resources: Resources) => aContainer(name, { command: ["sleep", "infinity"], resources });
  const t = start(
    aPod({
      nodeName,
      containers: [
        c("a", { requests: { cpu: "20m" } }),
        c("b", { requests: { memory: "35Mi" } }),
        c("c", { requests: { cpu: "20m" } }),
        c("d", { requests: { memory: "35Mi" } }),
        c("e", { requests: { cpu: "2m" }, limits: { cpu: "10m" } }),
      ],
    }),
  );
  const node = t.run();
  await t.clock.advance(20_000);
  const wish = {
    a: { requests: { cpu: "25m" }, limits: { cpu: "35m" } },
    b: { requests: { memory: "30Mi" }, limits: { memory: "50Mi" } },
    c: { requests: { cpu: "15m", memory: "35Mi" } },
    d: { requests: { cpu: "20m", memory: "40Mi" } },
    e: { requests: { cpu: "1m" }, limits: { cpu: "5m" } },
  };
  t.api.resize(wish);
  await t.clock.advance(1_000);
  const { status = {} } = t.api.pod();
  assert.deepEqual([resizeConditions(status), resourcesIn(status)], [[], Object.values(wish)]);
  assert.deepEqual(
    status.containerStatuses?.map(({ allocatedResources }) => allocatedResources),
    Object.values(wish).map(({ requests }) => requests),
  );
  await t.halt(node);
});

test("if a pod is resized while its image is pulled, starts it with the new resources and cgroup limits", async () => {
  const t = start(twoContainers());
  const go = t.runtime.hold("pullImage");
  const node = t.run();
  await t.clock.advance(20_000);
  assert.equal(t.own("memory.max"), String(96 * 2 ** 20));
  t.api.resize({ a: has("200m", "128Mi") });
  await t.clock.advance(1_000);
  go();
  await t.clock.advance(5_000);
  const { status = {} } = t.api.pod();
  assert.deepEqual([resizeConditions(status), resourcesIn(status)[0]], [[], has("200m", "128Mi")]);
  assert.equal(t.own("memory.max"), String(160 * 2 ** 20));
  await t.halt(node);
});
