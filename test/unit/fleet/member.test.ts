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
import { CodedError } from "../../../src/lib/errors.ts";
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
  let source: ConfiguredMetadataSource | undefined;
  const client: ApiClient = {
    ...absentApi(),
    async get<T>(path: string): Promise<T> {
      const node = nodes.get(path.split("/").at(-1) ?? "");
      if (!node) throw new CodedError("not_found", path);
      return node as T;
    },
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
      decodeNode(entry) {
        const { maxPods } = entry["kubeletConfiguration"] as { maxPods?: unknown };
        if (maxPods === "many") throw new CodedError("invalid_argument", "maxPods is wrong");
        const { name, labels, annotations, taints } = entry;
        return { nodeName: name, configured: { labels, annotations, taints } } as unknown as NodeConfig;
      },
    },
    addresses: () => ["10.0.0.9"],
    secret: (name) => secrets.get(name),
    port: 10_255,
    report,
    async run(config, { metadata }, signal) {
      did.push(`start ${config.nodeName}`);
      source = metadata;
      await onAbort(signal);
      did.push("stop");
    },
    withNodeClient: (_config, work) => work(client),
    clean: () => Promise.resolve(true),
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
  const settle = async (ms = 1_000) => {
    // Files are written meanwhile.
    for (let turn = 0; turn < 10; turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 2));
      await clock.advance(ms / 10);
    }
  };
  const condition = (type: string): FleetCondition | undefined =>
    written
      .flatMap(({ body }) => body.status ?? [])
      .at(-1)
      ?.conditions?.find((each) => each.type === type);
  const change = async (to: Partial<GraftedNodeSpec>, metadata: Partial<GraftedNode["metadata"]> = {}) => {
    const generation = (object.metadata.generation ?? 0) + 1;
    object = { ...object, metadata: { ...object.metadata, generation, ...metadata }, spec: { ...object.spec, ...to } };
    member.update(object);
    await settle();
  };
  return {
    clock,
    member,
    nodes,
    secrets,
    secret,
    written,
    did,
    report,
    settle,
    condition,
    change,
    ended,
    stop,
    source: () => source,
  };
}

test("publishes the Service and keeps the object before the node starts", async (t) => {
  const { written, did, settle, condition } = start(t);
  await settle();
  assert.deepEqual(did, ["create secrets", "start edge-1"]);
  const paths = written.map(({ path }) => path.replace(/^.*namespaces\/edge\//, ""));
  assert.deepEqual(paths.slice(0, 3), [
    "services/graftlet-edge-1",
    "endpointslices/graftlet-edge-1-ipv4",
    "graftednodes/edge-1",
  ]);
  assert.deepEqual(written[2]?.body.metadata?.finalizers, ["graftlet.dev/leave"]);
  assert.equal(condition("Accepted")?.status, "True");
  assert.equal(condition("Ready")?.reason, "CertificatePending");
});

test("a change of the specification restarts the node; paused stops it; labels and time limits do neither", async (t) => {
  const { did, settle, condition, change, source } = start(t);
  await settle();
  did.length = 0;
  let changes = 0;
  void source()
    ?.changed(new AbortController().signal)
    .then(() => (changes += 1));
  await change({ drainTimeout: "1m" });
  assert.equal(changes, 0);
  await change({ labels: { a: "b" }, defaultTaint: false });
  assert.deepEqual(did, []);
  assert.equal(changes, 1);
  assert.equal(source()?.current().labels["a"], "b");
  assert.deepEqual(source()?.current().taints, []);
  await change({ reserved: { cpu: 1 } });
  assert.deepEqual(did, ["stop", "start edge-1"]);
  did.length = 0;
  await change({ paused: true });
  assert.deepEqual(did, ["stop"]);
  assert.equal(condition("Ready")?.reason, "Paused");
  await change({ paused: false });
  assert.equal(did.at(-1), "start edge-1");
});

test("a specification that cannot be served leaves the node as it runs, and says so", async (t) => {
  const { did, settle, condition, change } = start(t);
  await settle();
  did.length = 0;
  await change({ kubeletConfiguration: { maxPods: "many" } });
  assert.deepEqual(did, []);
  assert.equal(condition("Accepted")?.message, "maxPods is wrong; the node runs on as it was");
  await change({ kubeletConfiguration: { maxPods: 9 } });
  assert.deepEqual(did, ["stop", "start edge-1"]);
  assert.equal(condition("Accepted")?.status, "True");
});

test("waits for a missing Secret, and starts when it comes", async (t) => {
  const { did, secrets, secret, settle, condition, member } = start(t, {
    ssh: { host: "machine", secretRef: { name: "later" } },
  });
  await settle();
  assert.deepEqual(did, []);
  assert.equal(condition("Ready")?.reason, "LoginSecretMissing");
  secrets.set("later", secret);
  member.wake();
  await settle();
  assert.equal(did.at(-1), "start edge-1");
});

test("does not take over the Node of others", async (t) => {
  const { did, nodes, settle, condition } = start(t);
  nodes.set("edge-1", { metadata: { name: "edge-1" }, spec: { providerID: "aws:///x" } });
  await settle();
  assert.equal(did.includes("start edge-1"), false);
  assert.equal(condition("Accepted")?.reason, "NameTaken");
  nodes.delete("edge-1");
  await settle(11_000);
  assert.equal(did.at(-1), "start edge-1");
});

test("a deleted object leaves the cluster, and ends", async (t) => {
  const { clock, did, written, settle, change, ended } = start(t);
  await settle();
  const deletionTimestamp = rfc3339(clock.now());
  await change({ deletionPolicy: "Release" }, { deletionTimestamp, finalizers: ["graftlet.dev/leave"] });
  await ended;
  assert.ok(did.includes("stop"));
  assert.ok(did.includes("delete /api/v1/nodes/edge-1"));
  assert.deepEqual(written.findLast(({ body }) => body.metadata?.finalizers)?.body.metadata?.finalizers, []);
});

test("a stopped process stops the node, and leaves the object as it is", async (t) => {
  const { did, written, settle, ended, stop } = start(t);
  await settle();
  stop.abort();
  await ended;
  assert.equal(did.at(-1), "stop");
  assert.equal(written.filter(({ body }) => body.metadata?.finalizers).length, 1);
});
