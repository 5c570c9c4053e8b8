import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { absentApi } from "../../../src/api/absent.ts";
import type { ApiClient, Patch, WatchEvent } from "../../../src/api/client.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import { enrolmentSecretName, tokenData } from "../../../src/fleet/enrolment.ts";
import { createFleet } from "../../../src/fleet/fleet.ts";
import type { GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import type { GraftedNodePool } from "../../../src/fleet/pool.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import { createTrigger } from "../../../src/lib/trigger.ts";
import type { Lease, Node, Secret } from "../../../src/objects.ts";
import { createReportedNode, type NodeIntrospection } from "../../../src/report/reported-node.ts";
import type { EnrolmentHandler } from "../../../src/seams/enrolment.ts";
import type { Arrival, MachineListeners } from "../../../src/seams/machine-listeners.ts";
import { fakeClock } from "../../fakes/clock.ts";

const namespace = "edge";
let uids = 0;
const machine = (name: string, spec: Partial<GraftedNodeSpec> = {}): GraftedNode => ({
  metadata: { name, namespace, uid: `${(uids += 1)}`, generation: 1, resourceVersion: "1" },
  spec: { ssh: { host: "machine" }, ...spec },
});

type FleetObject = GraftedNode | GraftedNodePool | Lease;

/** A namespace with objects that come, change and go. */
function cluster() {
  const kinds = ["secrets", "graftednodes", "graftednodepools", "leases"] as const;
  /** Statuses by the names of objects, as written. */
  const statuses = new Map<string, GraftedNode["status"]>();
  const lists = new Map<string, FleetObject[]>(kinds.map((kind) => [kind, []]));
  const events = new Map<
    string,
    { readonly queue: WatchEvent<FleetObject>[]; readonly news: ReturnType<typeof createTrigger> }
  >(kinds.map((kind) => [kind, { queue: [], news: createTrigger() }]));
  const kindOf = (path: string) => path.split("/").at(-1) ?? "";
  const client: ApiClient = {
    ...absentApi(),
    get: (path) => Promise.reject(new CodedError("not_found", path)),
    list: async <T>(path: string) => ({
      items: (lists.get(kindOf(path)) ?? []) as T[],
      metadata: { resourceVersion: "1" },
    }),
    create: async <T>() => ({}) as T,
    async patch<T>(path: string, { body }: Patch) {
      const name = path.split("/").at(path.endsWith("/status") ? -2 : -1) ?? "";
      if (path.includes("/leases/")) send("MODIFIED", body as Lease, "leases");
      const kind = path.split("/").at(-3) ?? "";
      const { status } = body as GraftedNode;
      if (!path.endsWith("/status") || !status) return {} as T;
      statuses.set(name, { ...statuses.get(name), ...status });
      const object = latest.get(name);
      if (object) send("MODIFIED", object, kind);
      return {} as T;
    },
    delete: async () => undefined,
    async *watch<T>(path: string, { signal }: { readonly signal: AbortSignal }) {
      const feed = events.get(kindOf(path));
      if (!feed) return;
      while (!signal.aborted) {
        for (const event of feed.queue.splice(0)) yield event as WatchEvent<T>;
        await feed.news.fired(signal);
      }
    },
  };
  const latest = new Map<string, FleetObject>();
  function send(type: "ADDED" | "MODIFIED" | "DELETED", object: FleetObject, kind = "graftednodes") {
    const { name = "" } = object.metadata;
    latest.set(name, object);
    const written = kind === "leases" ? undefined : statuses.get(name);
    const feed = events.get(kind);
    const status = written && { status: { ...(object as GraftedNode).status, ...written } };
    feed?.queue.push({ type, object: { ...object, ...status } as FleetObject });
    feed?.news.fire();
  }
  return { client, lists, latest, send };
}

/** A running node whose Node is Ready. */
function readyNode(name: string): NodeIntrospection {
  const conditions = [{ type: "Ready", status: "True", reason: "KubeletReady", message: "" }];
  const node = { metadata: { name, uid: name }, status: { conditions } } as unknown as Node;
  return {
    standalone: false,
    node: () => node,
    onChange: () => () => undefined,
    pods: () => [],
    podCount: () => 0,
    summary: () => Promise.reject(new Error("unused")),
  };
}

/** What differs for machines that connect to a listener. */
interface Connecting {
  readonly listeners: MachineListeners;
  readonly secrets: readonly Secret[];
  readonly leases: readonly Lease[];
}

function start(
  t: TestContext,
  first: readonly GraftedNode[] = [],
  pools: readonly GraftedNodePool[] = [],
  connecting?: Connecting,
) {
  const clock = fakeClock();
  const { client, lists, latest, send } = cluster();
  lists.get("secrets")?.push(...((connecting?.secrets ?? []) as unknown as FleetObject[]));
  lists.get("leases")?.push(...(connecting?.leases ?? []));
  lists.get("graftednodes")?.push(...first);
  for (const object of [...first, ...pools]) latest.set(object.metadata.name, object);
  lists.get("graftednodepools")?.push(...pools);
  const directory = mkdtempSync(join(tmpdir(), "graftlet-fleet-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const did: string[] = [];
  /** Names of the nodes whose specifications were read, each time. */
  const decoded: string[] = [];
  const reported = new Set<string>();
  let listed = 0;
  const fleet = createFleet({
    listeners: async () => connecting?.listeners ?? Promise.reject(new Error("there is no listener")),
    clock,
    log: silentLog(),
    client,
    namespace,
    self: { name: "graftlet-1", uid: "pod-1" },
    reach: () => Promise.reject(new Error("unused")),
    usedPorts: [10_250],
    isConfigured: (name) => name === "configured",
    addresses: () => ["10.0.0.9"],
    fleet: {
      release: "r",
      nodeNames: ["m-*"],
      mayHave: () => true,
      directory,
      hasServices: false,
      listener: connecting && { port: 2222, hostKeyFile: "listener" },
      decodeNode({ name, port }) {
        decoded.push(String(name));
        return { nodeName: name, kubelet: { port } } as unknown as NodeConfig;
      },
    },
    addNode(name) {
      reported.add(name);
      return {
        report: createReportedNode({ name, provider: "ssh" }),
        log: silentLog(),
        [Symbol.dispose]: () => void reported.delete(name),
      };
    },
    onListed: () => (listed += 1),
    async run({ nodeName, kubelet: { port } }, { report, fencingToken }, signal) {
      did.push(`start ${nodeName} ${port}`);
      report.onTargetOpened("local");
      // A machine that has been used in epoch 3.
      if (nodeName === "later" && (fencingToken?.epoch ?? 0) < 3)
        report.onProgress({ trouble: { reason: "Superseded", message: "a later epoch" } });
      if (nodeName === "later") did.push(`epoch ${fencingToken?.epoch}`);
      report.onProgress({ isIdentified: true, isClaimed: true });
      report.onRunning(readyNode(nodeName));
      await onAbort(signal);
      report.onRunning(undefined);
      did.push(`stop ${nodeName}`);
    },
    withNodeClient: () => Promise.reject(new Error("unused")),
    clean: () => Promise.reject(new Error("unused")),
  });
  const stop = new AbortController();
  const ended = fleet.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await ended;
  });
  const until = async (holds: () => boolean) => {
    for (let turn = 0; turn < 2_000 && !holds(); turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      await clock.advance(10);
    }
    assert.ok(holds(), did.join());
  };
  const { observed } = fleet;
  return { did, decoded, reported, observed, send, until, listed: () => listed, now: () => clock.now(), stop, ended };
}

test("serves each object on a separate port that no other listener of the process uses", async (t) => {
  const { did, reported, until, listed } = start(t, [machine("a"), machine("b")]);
  await until(() => did.length === 2);
  assert.deepEqual(did.toSorted(), ["start a 10251", "start b 10252"]);
  assert.deepEqual([...reported], ["a", "b"]);
  assert.equal(listed(), 1);
});

test("with three hundred objects, adding one starts only its node; deleting one stops only its node and frees the port", async (t) => {
  const many = Array.from({ length: 300 }, (_, index) => machine(`m-${index}`));
  const { did, reported, send, until } = start(t, many);
  await until(() => did.length === 300);
  did.length = 0;
  const more = machine("more");
  send("ADDED", more);
  await until(() => did.length > 0);
  assert.deepEqual(did, [`start more ${10_251 + 300}`]);
  const [first] = many;
  assert.ok(first);
  send("DELETED", first);
  await until(() => !reported.has("m-0"));
  assert.deepEqual(did.slice(1), ["stop m-0"]);
  send("ADDED", machine("again"));
  await until(() => did.length === 3);
  assert.equal(did[2], "start again 10251");
});

test("does not serve an object while a configuration has a node of its name, or while it represents such a node", async (t) => {
  const shown = machine("a", { static: { release: "r", provider: "ssh" } });
  const { did, send, until, listed } = start(t, [shown, machine("configured"), machine("b")]);
  await until(() => listed() === 1 && did.length > 0);
  assert.deepEqual(did, ["start b 10251"]);
  const released = { ...shown, spec: { ssh: shown.spec.ssh } };
  send("MODIFIED", released);
  await until(() => did.length === 2);
  assert.equal(did[1], "start a 10252");
  send("MODIFIED", shown);
  await until(() => did.length === 3);
  assert.equal(did[2], "stop a");
});

test("takes an object again if its machine knows a later epoch, until it has the latest", async (t) => {
  const { did, until } = start(t, [machine("later")]);
  await until(() => did.includes("epoch 3"));
  assert.deepEqual(
    did.filter((line) => line.startsWith("epoch")),
    ["epoch 1", "epoch 2", "epoch 3"],
  );
});

test("restarts the node of an object that is deleted and created again with the same name", async (t) => {
  const old = machine("a");
  const { did, send, until } = start(t, [old]);
  await until(() => did.length === 1);
  send("DELETED", old);
  send("ADDED", machine("a"));
  await until(() => did.length === 3);
  assert.deepEqual(did, ["start a 10251", "stop a", "start a 10251"]);
});

test("changing a pool's template restarts its members one after another; changing its labels restarts none", async (t) => {
  const poolOf = (template: GraftedNodePool["spec"]["template"]): GraftedNodePool => ({
    metadata: { name: "edge", namespace, uid: "pool" },
    spec: { ...(template && { template }), disruption: { maxUnavailable: 1 } },
  });
  const members = ["a", "b", "c"].map((name) => machine(name, { poolRef: { name: "edge" } }));
  const { did, send, until, now } = start(t, [...members, machine("own")], [poolOf({})]);
  await until(() => did.length === 4);
  did.length = 0;
  send("MODIFIED", poolOf({ labels: { tier: "edge" } }), "graftednodepools");
  const from = now();
  await until(() => now() - from > 3_000);
  assert.equal(did.length, 0, did.join());
  send("MODIFIED", poolOf({ reserved: { cpu: 1 } }), "graftednodepools");
  const times: number[] = [];
  for (const restarts of [1, 2, 3]) {
    await until(() => did.length >= 2 * restarts);
    times.push(now());
  }
  assert.deepEqual(
    did.map((line) => line.split(" ").slice(0, 2).join(" ")),
    ["stop a", "start a", "stop b", "start b", "stop c", "start c"],
  );
  const [first = 0, second = 0, third = 0] = times;
  assert.ok(second - first >= 10_000 && third - second >= 10_000, times.join());
});

test("observes the conditions of each object that is served, and the replicas of each pool", async (t) => {
  const pool: GraftedNodePool = {
    metadata: { name: "p", namespace, uid: "pool", generation: 1, resourceVersion: "1" },
    spec: { replicas: 1 },
  };
  const members = ["a", "b"].map((name) => machine(name, { poolRef: { name: "p" } }));
  const { observed, send, until } = start(t, [...members, machine("c"), machine("configured")], [pool]);
  const seen = () =>
    observed.nodes().map(({ name, pool: of, conditions }) => {
      const ready = conditions.find(({ type }) => type === "Ready");
      return [name, of, ready?.status, ready?.reason].join(" ");
    });
  await until(() => observed.pools()[0]?.ready === 1 && seen().includes("c  True NodeReady"));
  assert.deepEqual(seen(), ["a p True NodeReady", "b p False Inactive", "c  True NodeReady"]);
  assert.deepEqual(observed.pools(), [{ name: "p", wanted: 1, active: 1, ready: 1, updated: 1, isPaused: false }]);
  for (const gone of members) send("DELETED", gone);
  send("DELETED", pool, "graftednodepools");
  await until(() => observed.pools().length === 0);
  assert.deepEqual(seen(), ["c  True NodeReady"]);
});

test("a node does not reread its specification when a status changes, or a Secret that is not a login", async (t) => {
  const pool: GraftedNodePool = { metadata: { name: "edge", namespace, uid: "pool" }, spec: {} };
  const members = ["a", "b", "c"].map((name) => machine(name, { poolRef: { name: "edge" } }));
  const { did, decoded, send, until, now } = start(t, members, [pool]);
  await until(() => did.length === 3);
  const settle = async () => {
    const from = now();
    await until(() => now() - from > 3_000);
  };
  await settle();
  decoded.length = 0;
  const [first] = members;
  assert.ok(first);
  const replicas = { members: 3, replicas: 3, readyReplicas: 1, updatedReplicas: 3, conditions: [] };
  send("MODIFIED", { ...pool, status: replicas }, "graftednodepools");
  send("MODIFIED", { ...first, status: { conditions: [] } });
  send("ADDED", { metadata: { name: "certificates-of-a", namespace, uid: "secret" }, spec: {} }, "secrets");
  await settle();
  assert.deepEqual(decoded, []);
  send("MODIFIED", { ...pool, spec: { template: { labels: { tier: "edge" } } } }, "graftednodepools");
  await until(() => decoded.length >= 3);
});

test("stopping the process stops all nodes", async (t) => {
  const { did, until, stop, ended } = start(t, [machine("a"), machine("b")]);
  await until(() => did.length === 2);
  stop.abort();
  await ended;
  assert.deepEqual(did.slice(2).toSorted(), ["stop a", "stop b"]);
});

/** A listener that records what is expected there. */
function fakeListeners() {
  const keys = new Map<string, string>();
  const changed = new Map<string, () => void>();
  const arrivals = new Map<string, Arrival>();
  let handler: EnrolmentHandler | undefined;
  const listeners: MachineListeners = {
    async open(_listener, opened) {
      handler = opened;
      return { [Symbol.asyncDispose]: async () => void (handler = undefined) };
    },
    expect(_listener, name, onChange) {
      changed.set(name, onChange);
      return {
        setKeys: (text) => void keys.set(name, text),
        arrival: () => arrivals.get(name),
        [Symbol.asyncDispose]: async () => void keys.delete(name),
      };
    },
    publicKeyOf: () => "",
  };
  const arrive = (name: string, at: number) => {
    arrivals.set(name, { at, isDoubtful: false });
    changed.get(name)?.();
  };
  return { listeners, keys, arrive, handler: () => handler };
}

/** Another replica that is alive, and what it owns. */
const otherLease: Lease = {
  metadata: { name: "graftlet-replica-graftlet-2", namespace, uid: "lease-2" },
  spec: { holderIdentity: "pod-2", renewTime: "2026-01-01T00:00:00.000000Z" },
};
const othersMachine = (name: string, ssh: GraftedNodeSpec["ssh"], linked: "True" | "False"): GraftedNode => ({
  ...machine(name, { ssh }),
  status: {
    owner: { replica: "graftlet-2", uid: "pod-2", epoch: 1, since: "" },
    observedEpoch: 1,
    conditions: [{ type: "Linked", status: linked, reason: "ReverseTunnelDown", message: "", lastTransitionTime: "" }],
  },
});

test("machines of another replica may connect here, and enrol here", async (t) => {
  const token = "0123456789abcdef0123456789abcdef";
  const data = tokenData(token, new Date(Date.UTC(2100, 0)), false);
  const secret = { metadata: { name: enrolmentSecretName("b"), namespace, uid: "s" }, data };
  const { listeners, keys, handler } = fakeListeners();
  const objects = [
    othersMachine("a", { reverse: { authorizedKeys: ["K"] } }, "True"),
    othersMachine("b", { reverse: {} }, "True"),
  ];
  const { did, until, stop, ended } = start(t, objects, [], { listeners, secrets: [secret], leases: [otherLease] });
  await until(() => keys.size > 0 && handler() !== undefined);
  assert.deepEqual([...keys], [["a", "K\n"]]);
  assert.equal(handler()?.isValid("b", token), true);
  assert.deepEqual(did, []);
  stop.abort();
  await ended;
  assert.deepEqual([keys.size, handler()], [0, undefined], "machines connect to other replicas now");
});

test("takes a machine that has connected here from an owner that has no connection", async (t) => {
  const { listeners, keys, arrive } = fakeListeners();
  const objects = [othersMachine("a", { reverse: { authorizedKeys: ["K"] } }, "False")];
  const { did, until, now } = start(t, objects, [], { listeners, secrets: [], leases: [otherLease] });
  await until(() => keys.has("a"));
  const began = now();
  arrive("a", began);
  await until(() => did.includes("start a 10251"));
  assert.ok(now() - began < 10_000, "its owner is alive");
});
