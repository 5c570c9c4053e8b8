import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { absentApi } from "../../../src/api/absent.ts";
import type { ApiClient } from "../../../src/api/client.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import type { FleetCondition, GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import { createMember, type MemberDeps } from "../../../src/fleet/member.ts";
import { createStarts } from "../../../src/fleet/starts.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { ConfiguredMetadataSource } from "../../../src/node/configured-metadata.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import { rfc3339 } from "../../../src/lib/rfc3339.ts";
import type { Node, Secret } from "../../../src/objects.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { fakeClock } from "../../fakes/clock.ts";

interface Written {
  readonly path: string;
  readonly body: { readonly metadata?: { finalizers?: readonly string[] }; readonly status?: GraftedNode["status"] };
}

/** One object, and a cluster that remembers what is written there. */
function start(t: TestContext, spec: Partial<GraftedNodeSpec> = {}) {
  const clock = fakeClock();
  const directory = mkdtempSync(join(tmpdir(), "graftlet-member-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const nodes = new Map<string, Node>();
  const secrets = new Map<string, Secret>();
  const written: Written[] = [];
  const did: string[] = [];
  const told: string[] = [];
  let active = true;
  let template = "";
  let hasTurn = false;
  let isCleanable = true;
  let source: ConfiguredMetadataSource | undefined;
  let expected: () => string | undefined = () => undefined;
  const client: ApiClient = {
    ...absentApi(),
    async get<T>(path: string): Promise<T> {
      if (path.includes("/graftednodes/")) return { metadata: { uid: "1" } } as T;
      const node = nodes.get(path.split("/").at(-1) ?? "");
      if (!node) throw new CodedError("not_found", path);
      return node as T;
    },
    list: async () => ({ items: [] }),
    create: async <T>(path: string) => {
      did.push(`create ${path.split("/").at(-1)}`);
      return {} as T;
    },
    patch: async <T>(path: string, { body }: { readonly body: object }) => {
      written.push({ path, body });
      return {} as T;
    },
    delete: async (path) => {
      nodes.delete(path.split("/").at(-1) ?? "");
      did.push(`delete ${path}`);
    },
  };
  const report = createReportedNode({ name: "edge-1", provider: "ssh" });
  const deps: MemberDeps = {
    clock,
    log: silentLog(),
    client,
    fleet: {
      release: "r",
      nodeNames: ["edge-*"],
      mayHave: (name) => name.startsWith("edge-"),
      directory,
      hasServices: true,
      listener: undefined,
      decodeNode(entry) {
        const { maxPods } = entry["kubeletConfiguration"] as { maxPods?: unknown };
        if (maxPods === "many") throw new CodedError("invalid_argument", "maxPods is wrong");
        const { name, labels, annotations, taints } = entry;
        return { nodeName: name, configured: { labels, annotations, taints } } as unknown as NodeConfig;
      },
    },
    addresses: () => ["10.0.0.9"],
    secret: (name) => secrets.get(name),
    hasPool: (name) => name === "pool",
    rollOuts: { template: () => template, hasTurn: () => hasTurn },
    startInTurn: createStarts(clock),
    isActive: () => active,
    events: { event: (_about, _type, reason, message) => void told.push(`${reason}: ${message}`) },
    port: 10_255,
    report,
    async run(config, { metadata, expectedMachine }, signal) {
      did.push(`start ${config.nodeName}`);
      source = metadata;
      expected = expectedMachine;
      await onAbort(signal);
      did.push("stop");
    },
    withNodeClient: (_config, work) => work(client),
    async clean(_config, _cleaning, signal) {
      did.push("clean");
      if (!isCleanable) await onAbort(signal);
      throwIfAborted(signal);
      return true;
    },
  };
  let object: GraftedNode = {
    metadata: { name: "edge-1", namespace: "edge", uid: "1", generation: 1 },
    spec: { ssh: { host: "machine", secretRef: { name: "login" } }, ...spec },
  };
  const secret: Secret = {
    metadata: { name: "login", namespace: "edge", uid: "2" },
    data: { "ssh-privatekey": Buffer.from("KEY").toString("base64") },
  };
  secrets.set("login", secret);
  const member = createMember(deps, object);
  const stop = new AbortController();
  const ended = member.serve(stop.signal);
  t.after(async () => {
    stop.abort();
    await ended;
  });
  const turn = async (ms: number) => {
    // Files are written meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 2));
    await clock.advance(ms);
  };
  /** Lets time pass until this holds: at most some seconds of the machine's own time. */
  const until = async (holds: () => boolean) => {
    for (let turns = 0; turns < 2_000 && !holds(); turns += 1) await turn(100);
    assert.ok(holds());
    // What follows from it is written too.
    for (let turns = 0; turns < 10; turns += 1) await turn(100);
  };
  const started = () => until(() => did.at(-1) === "start edge-1");
  const says = (type: string, reason: string) => until(() => condition(type)?.reason === reason);
  const condition = (type: string): FleetCondition | undefined =>
    written
      .flatMap(({ body }) => body.status ?? [])
      .at(-1)
      ?.conditions?.find((each) => each.type === type);
  const change = async (to: Partial<GraftedNodeSpec>, metadata: Partial<GraftedNode["metadata"]> = {}) => {
    const generation = (object.metadata.generation ?? 0) + 1;
    object = { ...object, metadata: { ...object.metadata, generation, ...metadata }, spec: { ...object.spec, ...to } };
    member.update(object);
    await turn(100);
  };
  return {
    clock,
    member,
    nodes,
    secrets,
    secret,
    written,
    did,
    told,
    report,
    until,
    started,
    says,
    condition,
    change,
    ended,
    stop,
    source: () => source,
    expectedMachine: () => expected(),
    /** Records the machine in the object's status. */
    setMachine(machineID: string) {
      object = { ...object, status: { machine: { machineID } } };
      member.update(object);
    },
    /** Changes the pool's template. */
    /** The template with which the node runs, according to the status. */
    template: () => written.findLast(({ body }) => body.status)?.body.status?.template,
    setTemplate: (text: string) => void (template = text),
    giveTurn() {
      hasTurn = true;
      member.wake();
    },
    /** The machine does not answer while it is cleaned. */
    hang: () => void (isCleanable = false),
    async setActive(now: boolean) {
      active = now;
      member.wake();
      await turn(100);
    },
  };
}

test("publishes the Service and adds the finalizer before the node starts", async (t) => {
  const { written, did, started, says, condition } = start(t);
  await started();
  await says("Ready", "CertificatePending");
  assert.deepEqual(did, ["create secrets", "start edge-1"]);
  const paths = written.map(({ path }) => path.replace(/^.*namespaces\/edge\//, ""));
  assert.deepEqual(paths.slice(0, 3), [
    "services/graftlet-edge-1",
    "endpointslices/graftlet-edge-1-ipv4",
    "graftednodes/edge-1",
  ]);
  assert.deepEqual(written[2]?.body.metadata?.finalizers, ["graftlet.dev/leave"]);
  assert.equal(condition("Accepted")?.status, "True");
});

test("a changed specification restarts the node, paused stops it, and changed labels and time limits do neither", async (t) => {
  const { did, started, until, says, change, source } = start(t);
  await started();
  did.length = 0;
  let changes = 0;
  void source()
    ?.changed(new AbortController().signal)
    .then(() => (changes += 1));
  await change({ drainTimeout: "1m" });
  assert.equal(changes, 0);
  await change({ labels: { a: "b" }, defaultTaint: false });
  await until(() => changes === 1);
  assert.deepEqual(did, []);
  assert.equal(source()?.current().labels["a"], "b");
  assert.deepEqual(source()?.current().taints, []);
  await change({ reserved: { cpu: 1 } });
  await started();
  assert.deepEqual(did, ["stop", "start edge-1"]);
  did.length = 0;
  await change({ paused: true });
  await says("Ready", "Paused");
  assert.deepEqual(did, ["stop"]);
  await change({ paused: false });
  await started();
});

test("a node restarts in its turn if the pool's template changes, but at once if its own object changes", async (t) => {
  const { did, started, until, change, setTemplate, giveTurn, template } = start(t);
  await started();
  did.length = 0;
  setTemplate("other");
  await change({ reserved: { cpu: 1 } });
  await until(() => true);
  assert.deepEqual(did, []);
  assert.equal(template(), "");
  giveTurn();
  await started();
  assert.deepEqual(did, ["stop", "start edge-1"]);
  await until(() => template() === "other");
  did.length = 0;
  await change({ reserved: { cpu: 2 } });
  await started();
  assert.deepEqual(did, ["stop", "start edge-1"]);
});

test("a node keeps running if its object overrides all changed fields of the template", async (t) => {
  const { did, started, until, setTemplate, template, member } = start(t);
  await started();
  did.length = 0;
  setTemplate("other");
  member.wake();
  await until(() => template() === "other");
  assert.deepEqual(did, []);
});

test("a node may run only on the machine recorded in its status, or on an accepted replacement, which is tried at once", async (t) => {
  const { did, started, until, change, setMachine, expectedMachine } = start(t);
  await started();
  assert.equal(expectedMachine(), undefined);
  setMachine("first");
  assert.equal(expectedMachine(), "first");
  await until(() => true);
  did.length = 0;
  await change({}, { annotations: { "graftlet.dev/accept-machine": "second" } });
  await started();
  assert.deepEqual([did, expectedMachine()], [["stop", "start edge-1"], "second"]);
});

test("if a changed specification cannot be served, the node keeps running unchanged, and Accepted says why", async (t) => {
  const { did, started, says, until, condition, change } = start(t);
  await started();
  did.length = 0;
  await change({ kubeletConfiguration: { maxPods: "many" } });
  await says("Accepted", "InvalidConfiguration");
  assert.deepEqual(did, []);
  assert.equal(condition("Accepted")?.message, "maxPods is wrong; the node keeps running unchanged");
  await change({ kubeletConfiguration: { maxPods: 9 } });
  await until(() => condition("Accepted")?.status === "True");
  assert.deepEqual(did, ["stop", "start edge-1"]);
});

test("waits for a missing Secret, and starts once it is created", async (t) => {
  const { did, secrets, secret, started, says, member } = start(t, {
    ssh: { host: "machine", secretRef: { name: "later" } },
  });
  await says("Ready", "LoginSecretMissing");
  assert.deepEqual(did, []);
  secrets.set("later", secret);
  member.wake();
  await started();
});

test("does not take over a Node with another provider ID", async (t) => {
  const { did, nodes, started, says } = start(t);
  nodes.set("edge-1", { metadata: { name: "edge-1" }, spec: { providerID: "aws:///x" } });
  await says("Accepted", "NameTaken");
  assert.equal(did.includes("start edge-1"), false);
  nodes.delete("edge-1");
  await started();
});

test("an inactive machine leaves the cluster while its object stays, and returns once it is active", async (t) => {
  const { did, written, started, says, setActive } = start(t);
  await started();
  did.length = 0;
  await setActive(false);
  await says("Ready", "Inactive");
  assert.ok(did.includes("stop"));
  assert.equal(written.findLast(({ body }) => body.status)?.body.status?.machine, undefined);
  assert.equal(written.filter(({ body }) => body.metadata?.finalizers).length, 1);
  await setActive(true);
  await started();
});

test("does not serve an object whose pool is missing", async (t) => {
  const { did, says } = start(t, { poolRef: { name: "other" } });
  await says("Ready", "PoolMissing");
  assert.deepEqual(did, []);
});

test("after a deletion, the machine leaves the cluster and the finalizer is removed", async (t) => {
  const { clock, did, written, started, change, ended } = start(t);
  await started();
  const deletionTimestamp = rfc3339(clock.now());
  await change({ deletionPolicy: "Release" }, { deletionTimestamp, finalizers: ["graftlet.dev/leave"] });
  await ended;
  assert.ok(did.includes("stop"));
  assert.ok(did.includes("delete /api/v1/nodes/edge-1"));
  assert.deepEqual(written.findLast(({ body }) => body.metadata?.finalizers)?.body.metadata?.finalizers, []);
});

test("the force annotation ends the wait for a machine that hangs", async (t) => {
  const { clock, did, told, nodes, started, until, change, ended, hang } = start(t);
  await started();
  hang();
  nodes.set("edge-1", { metadata: { name: "edge-1" }, spec: { providerID: "graftlet://edge/r/edge-1" } });
  const deleted = { deletionTimestamp: rfc3339(clock.now()), finalizers: ["graftlet.dev/leave"] };
  await change({}, deleted);
  await until(() => did.includes("clean"));
  assert.ok(nodes.has("edge-1"));
  await change({}, { ...deleted, annotations: { "graftlet.dev/force-leave": "gone" } });
  await ended;
  assert.ok(!nodes.has("edge-1"));
  assert.equal(
    told.at(-1),
    "LeftDirty: the Node is deleted, but its machine was not cleaned (forced: gone); machine ID unknown",
  );
});

test("does not take over a Node without a provider ID, such as a kubelet's", async (t) => {
  const { did, nodes, says } = start(t);
  nodes.set("edge-1", { metadata: { name: "edge-1" } });
  await says("Accepted", "NameTaken");
  assert.equal(did.includes("start edge-1"), false);
});

test("stops a running node once another object has registered the Node", async (t) => {
  const { did, nodes, report, started, says } = start(t);
  await started();
  const run = (providerID: string) => {
    const node: Node = { metadata: { name: "edge-1" }, spec: { providerID } };
    nodes.set("edge-1", node);
    report.onRunning({
      standalone: false,
      node: () => node,
      onChange: () => () => {},
      pods: () => [],
      podCount: () => 0,
      summary: () => Promise.reject(new Error("unused")),
    });
  };
  run("graftlet://edge/r/edge-1");
  await says("Registered", "NodeRegistered");
  assert.equal(did.includes("stop"), false);
  run("graftlet://other/r/edge-1");
  await says("Accepted", "NameTaken");
  assert.equal(did.at(-1), "stop");
});

test("stopping the process stops the node, and does not change the object", async (t) => {
  const { did, written, started, ended, stop } = start(t);
  await started();
  stop.abort();
  await ended;
  assert.equal(did.at(-1), "stop");
  assert.equal(written.filter(({ body }) => body.metadata?.finalizers).length, 1);
});

test("stopping the process in the middle of a step ends the member's work", async (t) => {
  const { ended, stop } = start(t);
  await new Promise((resolve) => setTimeout(resolve, 1));
  stop.abort();
  await ended;
});
