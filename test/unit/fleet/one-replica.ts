import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { absentApi } from "../../../src/api/absent.ts";
import type { ApiClient, Patch, WatchEvent } from "../../../src/api/client.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import { createFleet } from "../../../src/fleet/fleet.ts";
import type { GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import type { GraftedNodePool } from "../../../src/fleet/pool.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import { createTrigger } from "../../../src/lib/trigger.ts";
import type { Lease, Node, Secret } from "../../../src/objects.ts";
import { createReportedNode, type NodeIntrospection } from "../../../src/report/reported-node.ts";
import type { MachineListeners } from "../../../src/seams/machine-listeners.ts";
import { fakeClock } from "../../fakes/clock.ts";

// One replica of a release in a namespace in memory.

export const namespace = "edge";
let uids = 0;
/** An object with a UID of its own. */
export const machine = (name: string, spec: Partial<GraftedNodeSpec> = {}): GraftedNode => ({
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
  const spec = { providerID: `graftlet://${namespace}/r/${name}` };
  const node = { metadata: { name, uid: name }, spec, status: { conditions } } as unknown as Node;
  return {
    standalone: false,
    node: () => node,
    onChange: () => () => undefined,
    pods: () => [],
    podCount: () => 0,
    summary: () => Promise.reject(new Error("unused")),
  };
}

/** What differs for machines that connect to a listener, and beside other replicas. */
interface Connecting {
  readonly listeners: MachineListeners;
  readonly secrets: readonly Secret[];
  readonly leases: readonly Lease[];
}

/** Starts the replica, whose nodes run at once and are Ready. */
export function start(
  t: TestContext,
  first: readonly GraftedNode[] = [],
  pools: readonly GraftedNodePool[] = [],
  connecting?: Partial<Connecting>,
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
      listener: connecting?.listeners && { port: 2222, hostKeyFile: "listener" },
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
