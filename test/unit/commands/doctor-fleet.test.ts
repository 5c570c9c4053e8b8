import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { ApiError } from "../../../src/api/api-error.ts";
import { examineFleet, type FleetExamination } from "../../../src/commands/doctor-fleet.ts";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import type { FleetConfig } from "../../../src/config/fleet-configuration.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import { ok, warning } from "../../../src/doctor/findings.ts";
import type { FleetCondition, GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient } from "../api/fake-client.ts";
import { filesIo } from "../config/files.ts";

/** Decodes objects as the running process does. */
function fleetConfig(): FleetConfig {
  const file = `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
certificateSecret: c
kubeletAddress: service
fleet: { release: edge, nodeNames: ["edge-*"] }
`;
  const io = filesIo({ "/nodes.yaml": file }, { KUBERNETES_SERVICE_HOST: "10.0.0.1" });
  const parsed = parseCommandLine(["doctor", "--nodes=/nodes.yaml", "--cert-dir=/pki"], io);
  assert.ok(parsed.kind === "doctor" && parsed.fleet);
  return parsed.fleet.config;
}

const condition = (type: string, status: FleetCondition["status"], reason: string, message: string) => ({
  type,
  status,
  reason,
  message,
  lastTransitionTime: "2026-01-01T00:00:00Z",
});
const ready = { conditions: [condition("Ready", "True", "NodeReady", "the Node is Ready")] };
const machine = (
  name: string,
  spec: Partial<GraftedNodeSpec> = {},
  more: Pick<GraftedNode, "status"> & { readonly metadata?: object } = { status: ready },
): GraftedNode => ({
  ...more,
  metadata: { name, namespace: "edge", uid: name, ...more.metadata },
  spec: { ssh: { host: "machine", secretRef: { name: "login" } }, ...spec },
});

interface FakeCluster {
  readonly objects: readonly GraftedNode[];
  readonly pools?: readonly object[];
  /** Thrown by each list. */
  readonly refusal?: Error;
  readonly node?: string;
  readonly examine?: (config: NodeConfig) => Promise<void>;
  readonly signal?: AbortSignal;
}

/** A namespace with a login Secret; what is found there, with what was examined and asked for. */
async function examined({ objects, pools = [], refusal, node, examine, signal = never }: FakeCluster) {
  const configs: NodeConfig[] = [];
  const client = fakeClient(({ verb, path }: Call) => {
    if (verb === "list" && refusal) throw refusal;
    if (path.endsWith("/graftednodes")) return { items: objects };
    if (path.endsWith("/graftednodepools")) return { items: pools };
    if (path !== "/api/v1/namespaces/edge/secrets/login")
      throw new ApiError("not_found", path, { status: 404, reason: "NotFound" });
    return { metadata: {}, data: { "ssh-privatekey": Buffer.from("KEY").toString("base64") } };
  });
  const of: FleetExamination = {
    fleet: fleetConfig(),
    client,
    namespace: "edge",
    node,
    clock: fakeClock(),
    async examineMachine(config, reported) {
      configs.push(config);
      await examine?.(config);
      return [...reported, { check: "machine", ...ok("Debian") }, { check: "swap", ...warning("on") }];
    },
    examineNode: async (name, reported) => [...reported, { check: "node", ...ok(name) }],
  };
  const found: string[] = [];
  for await (const { node: name = "", findings } of examineFleet(of, signal))
    for (const { check, level, reason = "", message } of findings)
      found.push([name, check, level, reason, message].join("|"));
  return { found, configs, calls: client.calls };
}

const loginFile = ({ providerConfig }: NodeConfig) =>
  String((providerConfig as { readonly privateKeyFile?: unknown }).privateKeyFile);

test("examines an object's machine with its pool's defaults, and stores its login only temporarily and in separate files", async () => {
  const pool = {
    metadata: { name: "pool", namespace: "edge", uid: "p" },
    spec: { template: { ssh: { user: "ubuntu", port: 2200 }, kubeletConfiguration: { maxPods: 9 } } },
  };
  const logins: string[] = [];
  const { found, configs, calls } = await examined({
    objects: [machine("edge-1", { poolRef: { name: "pool" } })],
    pools: [pool],
    examine: async (config) => void logins.push(readFileSync(loginFile(config), "utf8")),
  });
  assert.deepEqual(found, [
    "edge-1|GraftedNode|ok||the Node is Ready",
    "edge-1|machine|ok||Debian",
    "edge-1|swap|warning||on",
  ]);
  const [config] = configs;
  assert.ok(config);
  const { host, user, port } = config.providerConfig as { host?: string; user?: string; port?: number };
  assert.deepEqual(
    [config.nodeName, host, user, port, config.kubelet.maxPods, config.certDir],
    ["edge-1", "machine", "ubuntu", 2200, 9, "/pki/edge-1"],
  );
  // The running process has chosen the port of the kubelet API.
  assert.equal(config.kubelet.port, 0);
  assert.deepEqual(logins, ["KEY"]);
  assert.ok(!loginFile(config).startsWith("/pki"));
  assert.equal(existsSync(dirname(dirname(dirname(loginFile(config))))), false);
  assert.ok(calls.every(({ verb }) => verb === "get" || verb === "list"));
});

test("reports why an object cannot be served, and still examines the others", async () => {
  const { found, configs } = await examined({
    objects: [
      machine("other"),
      machine("edge-1", { ssh: { host: "machine", secretRef: { name: "gone" } } }),
      machine("edge-2", { kubeletConfiguration: { maxPods: "many" } }),
      machine("edge-3", { poolRef: { name: "gone" } }),
      machine("edge-4"),
      machine("edge-5"),
    ],
    async examine({ nodeName }) {
      if (nodeName === "edge-4") throw new CodedError("invalid_argument", "providerConfig.user is wrong");
    },
  });
  const expected = [
    /^other\|GraftedNode\|failure\|NameNotAllowed\|GraftedNode other: .*fleet\.nodeNames/,
    /^edge-1\|GraftedNode\|failure\|LoginSecretMissing\|spec\.ssh\.secretRef names Secret "gone"/,
    /^edge-2\|GraftedNode\|failure\|InvalidConfiguration\|GraftedNode edge-2: spec\.kubeletConfiguration\.maxPods/,
    /^edge-3\|GraftedNode\|failure\|PoolMissing\|.*"gone", which does not exist/,
    /^edge-4\|GraftedNode\|failure\|InvalidConfiguration\|providerConfig\.user is wrong$/,
    /^edge-5\|GraftedNode\|ok/,
  ];
  for (const [index, line] of expected.entries()) assert.match(found[index] ?? "", line);
  assert.deepEqual(configs.map(({ nodeName }) => nodeName).toSorted(), ["edge-4", "edge-5"]);
  for (const config of configs) assert.equal(existsSync(loginFile(config)), false);
});

test("reports the object's Ready condition with a truncated message, or that the status is empty", async () => {
  const taken = { conditions: [condition("Ready", "False", "NameTaken", "x".repeat(30_000))] };
  const { found } = await examined({
    objects: [machine("edge-1", {}, { status: taken }), machine("edge-2", {}, { status: {} })],
  });
  assert.match(found[0] ?? "", /^edge-1\|GraftedNode\|failure\|NameTaken\|x{1000}…$/);
  assert.match(found[3] ?? "", /^edge-2\|GraftedNode\|warning\|\|its status is empty: check that graftlet runs/);
});

test("does not examine the machine of an object that is paused, inactive or being deleted, and says so", async () => {
  const says = (reason: string) => ({ status: { conditions: [condition("Ready", "False", reason, "as told")] } });
  const pool = { metadata: { name: "rests", namespace: "edge", uid: "p" }, spec: { template: { paused: true } } };
  const { found, configs, calls } = await examined({
    objects: [
      machine("edge-1", { paused: true }),
      machine("edge-2", { poolRef: { name: "rests" } }),
      machine("edge-3", { active: false }),
      machine("edge-4", {}, says("Inactive")),
      machine("edge-5", {}, says("Leaving")),
      machine("edge-6", { paused: true }, { status: ready, metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }),
    ],
    pools: [pool],
  });
  const paused = "GraftedNode|ok|Paused|not checked: spec.paused is true, so someone may be working on the machine";
  assert.deepEqual(found, [
    `edge-1|${paused}`,
    `edge-2|${paused}`,
    "edge-3|GraftedNode|ok|Inactive|not checked: spec.active is false",
    "edge-4|GraftedNode|ok|Inactive|not checked: as told",
    "edge-5|GraftedNode|ok|Leaving|not checked: as told",
    "edge-6|GraftedNode|ok|Leaving|not checked: the object is being deleted, and its machine is leaving the cluster",
  ]);
  assert.deepEqual(configs, []);
  assert.equal(calls.filter(({ path }) => path.includes("/secrets/")).length, 0);
});

test("for a machine that connects to the running graftlet by itself, reports its Linked condition and makes no connection", async () => {
  const reverse = { ssh: { reverse: { authorizedKeys: ["ssh-ed25519 AAAA"] } } };
  const down = condition("Linked", "False", "ReverseTunnelDown", "no tunnel is open");
  const up = condition("Linked", "True", "Connected", "the machine is connected");
  const { found, configs } = await examined({
    objects: [
      machine("edge-1", reverse, { status: { conditions: [...ready.conditions, up] } }),
      machine("edge-2", reverse, { status: { conditions: [...ready.conditions, down] } }),
      machine("edge-3", reverse, { status: {} }),
    ],
  });
  const links = found.filter((line) => line.includes("|link|"));
  assert.match(
    links[0] ?? "",
    /^edge-1\|link\|ok\|\|the machine is connected, through its reverse tunnel .* is not checked$/,
  );
  assert.equal(links[1], "edge-2|link|failure|ReverseTunnelDown|no tunnel is open");
  assert.match(links[2] ?? "", /^edge-3\|link\|warning\|\|unknown: /);
  assert.ok(found.includes("edge-2|node|ok||edge-2"));
  assert.deepEqual(configs, []);
});

test("if the objects cannot be listed, or there are none, reports one finding with the remedy", async () => {
  const refused = async (code: "not_found" | "permission_denied" | "unavailable", status: number) => {
    const refusal = new ApiError(code, "the server said no", { status, reason: "" });
    return (await examined({ objects: [machine("edge-1")], refusal })).found;
  };
  const [missing, ...others] = await refused("not_found", 404);
  assert.match(
    missing ?? "",
    /^\|GraftedNodes\|failure\|\|.*CustomResourceDefinition.*helm upgrade --set crds\.enabled/,
  );
  assert.deepEqual(others, []);
  assert.match((await refused("permission_denied", 403)).join(), /the server said no: upgrade the release with rbac/);
  assert.deepEqual(await refused("unavailable", 503), ["|GraftedNodes|failure||the server said no"]);
  assert.deepEqual((await examined({ objects: [] })).found, ["|GraftedNodes|ok||none in namespace edge"]);
});

test("examines only the named object", async () => {
  const objects = [machine("edge-1"), machine("edge-2")];
  const { configs } = await examined({ objects, node: "edge-2" });
  assert.deepEqual(
    configs.map(({ nodeName }) => nodeName),
    ["edge-2"],
  );
  const { found } = await examined({ objects, node: "edge-9" });
  assert.match(
    found.join(),
    /^\|GraftedNodes\|failure\|\|edge-9 is neither a node in the configuration nor a GraftedNode in namespace edge/,
  );
});

test("examines four machines at once and reports them in order, or only their problems in a large fleet", {
  timeout: 20_000,
}, async () => {
  const four = Promise.withResolvers<void>();
  let now = 0;
  let most = 0;
  const { found } = await examined({
    objects: Array.from({ length: 21 }, (_, index) => machine(`edge-${index}`, index === 7 ? { paused: true } : {})),
    async examine({ nodeName }) {
      most = Math.max(most, (now += 1));
      if (now === 4) four.resolve();
      await four.promise;
      // A fifth would come meanwhile; the first one ends last.
      await new Promise((resolve) => setTimeout(resolve, nodeName === "edge-0" ? 60 : 20));
      now -= 1;
    },
  });
  assert.equal(most, 4);
  assert.deepEqual(found.slice(0, 4), [
    "edge-0|swap|warning||on",
    "edge-0|others|ok||checks passed: 2",
    "edge-1|swap|warning||on",
    "edge-1|others|ok||checks passed: 2",
  ]);
  assert.equal(found.filter((line) => line.includes("|Paused|")).length, 1);
  assert.equal(found.length, 41);
});

test("once stopped, examines no further machines and leaves no login files behind", async () => {
  const configs: NodeConfig[] = [];
  const stop = new AbortController();
  const attempt = examined({
    objects: Array.from({ length: 9 }, (_, index) => machine(`edge-${index}`)),
    signal: stop.signal,
    async examine(config) {
      configs.push(config);
      stop.abort(new CodedError("cancelled", "stopped by SIGTERM"));
      throw stop.signal.reason;
    },
  });
  await assert.rejects(attempt, /stopped by SIGTERM/);
  assert.ok(configs.length > 0 && configs.length <= 4, String(configs.length));
  for (const config of configs) assert.equal(existsSync(loginFile(config)), false);
});
