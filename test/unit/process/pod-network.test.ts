import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { readOwnershipRecord, writeOwnershipRecord } from "../../../src/host/ownership-record.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { predictNetwork } from "../../../src/service-tunnel/network-mode.ts";
import type { Node } from "../../../src/objects.ts";
import { claimTarget } from "../../../src/process/claim.ts";
import { resolveNetwork } from "../../../src/process/pod-network.ts";
import type { TargetNetwork } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { lockingShell } from "../../fakes/flock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";
import { fakeClient, silent } from "../api/fake-client.ts";

const rootDir = "/var/lib/kubelet/edge-1";
const node = { nodeName: "edge-1", rootDir, kubelet: { podLogsDir: "/var/log/pods" } };
const auto: TargetNetwork = { isolated: true, auto: true };
const tunneled: TargetNetwork = { isolated: false, tunneled: true };

/** A machine with these programs, and a cluster whose API server is at that Service. */
function setUp({
  programs = ["nft", "python3"],
  service = { clusterIPs: ["10.96.0.1"], ports: [{ port: 443 }] },
  inPod = true,
}: {
  readonly programs?: readonly string[];
  readonly service?: object;
  readonly inPod?: boolean;
} = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.program("sh", lockingShell());
  const install = (name: string) => host.program(name, async () => 0);
  programs.forEach(install);
  const answers = { refused: 0 };
  /** The Node's annotations; undefined while it does not exist. */
  const shown: { annotations?: Record<string, string> | undefined } = {};
  const client = fakeClient(({ verb, path, body }) => {
    if (answers.refused-- > 0) throw new CodedError("unavailable", "no answer");
    if (path !== "/api/v1/nodes/edge-1") return { metadata: {}, spec: service };
    if (!shown.annotations) throw new CodedError("not_found", "no such node");
    if (verb === "patch") Object.assign(shown.annotations, (body as Node).metadata.annotations);
    return { metadata: { annotations: shown.annotations } };
  });
  const common = { client, clock, log: silent };
  return {
    clock,
    host,
    install,
    answers,
    shown,
    client,
    /** One start of the node. */
    async start(network: TargetNetwork = auto, standalone = false) {
      await using _claim = await claimTarget(
        { target: { host, sharing: "shared", network }, clock, log: silent },
        node,
        never,
      );
      const account = inPod && { account: { client } };
      return await resolveNetwork(
        { ...common, ...account, standalone, config: { rootDir, nodeName: "edge-1" }, target: { host, network } },
        never,
      );
    },
    foreseen: () => predictNetwork({ host, network: auto }, rootDir, never),
    onRecord: async () => (await readOwnershipRecord(host.fs, rootDir, never))?.network,
  };
}

test("tunnels a new node permanently if the target supports it", async () => {
  const t = setUp();
  assert.deepEqual(await t.foreseen(), tunneled);
  assert.deepEqual(await t.start(), tunneled);
  assert.deepEqual(await t.onRecord(), { is: "tunneled" });
  t.host.program("nft", undefined);
  assert.deepEqual(await t.start(), tunneled, "it is decided once");
  assert.deepEqual(await t.foreseen(), tunneled);
  assert.deepEqual(await t.start({ isolated: true }), { isolated: true }, "an explicit value wins");
});

test("keeps an existing node isolated, regardless of its target's capabilities", async () => {
  const t = setUp();
  await t.start({ isolated: true });
  assert.deepEqual(await t.start(), { isolated: true });
  assert.deepEqual(await t.foreseen(), { isolated: true });
  assert.equal(await t.onRecord(), undefined);
});

test("keeps a node isolated if its record cannot be read", async () => {
  const t = setUp();
  await t.start();
  await t.host.fs.apply([{ kind: "write", path: `${rootDir}/graftlet/node.json`, data: "{" }]);
  assert.deepEqual(await t.foreseen(), { isolated: true });
  assert.deepEqual(await t.start(), { isolated: true });
});

test("records no network decision if the start is aborted before it", async () => {
  const t = setUp();
  await using claim = await claimTarget(
    { target: { host: t.host, sharing: "shared", network: auto }, clock: t.clock, log: silent },
    node,
    never,
  );
  await claim[Symbol.asyncDispose]();
  assert.deepEqual(await t.onRecord(), { is: "new" });
  assert.deepEqual(await t.start(), tunneled);
});

for (const [what, options, obstacle] of [
  ["a target without nft", { programs: ["python3"] }, /^nft does not work on the target: install nftables/],
  ["a target without an interpreter", { programs: ["nft"] }, /^the target has neither python3 nor perl: install one$/],
  ["a cluster with IPv6 only", { service: { clusterIPs: ["fd00::1"] } }, /no IPv4 Services/],
] as const)
  test(`${what} isolates the node permanently, with the reason`, async () => {
    const t = setUp(options);
    const { obstacle: why = "", ...rest } = (await t.start()) ?? {};
    assert.deepEqual(rest, { isolated: true });
    assert.match(why, obstacle);
    for (const name of ["nft", "python3"]) t.install(name);
    assert.deepEqual(await t.start(), { isolated: true, obstacle: why });
    assert.deepEqual(await t.foreseen(), { isolated: true, obstacle: why });
  });

test("isolates the node if sshd forbids remote forwarding", async () => {
  const t = setUp();
  const listen = async () => {
    throw new CodedError("permission_denied", "sshd forwards no sockets");
  };
  await t.start({ isolated: true });
  await writeOwnershipRecord(t.host.fs, rootDir, { node: "edge-1", made: [], network: { is: "new" } }, never);
  const target = { host: { ...t.host, listen }, network: auto };
  const deps = { client: t.client, account: { client: t.client }, clock: t.clock, log: silent };
  const settled = await resolveNetwork(
    { ...deps, standalone: false, config: { rootDir, nodeName: "edge-1" }, target },
    never,
  );
  assert.deepEqual(settled, { isolated: true, obstacle: "sshd forwards no sockets" });
});

test("outside a Pod, tunnels only if graftlet itself can reach Services", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const service = { clusterIP: "127.0.0.1", ports: [{ port }] };
  assert.deepEqual(await setUp({ inPod: false, service }).start(), tunneled);
  server.close();
  await once(server, "close");
  const { obstacle } = (await setUp({ inPod: false, service }).start()) ?? {};
  assert.match(obstacle ?? "", /^graftlet could not reach Services of the cluster/);
});

test("waits for the API server before deciding; a standalone node makes no decision", async () => {
  const t = setUp();
  assert.deepEqual(await t.start(auto, true), auto);
  assert.deepEqual(await t.onRecord(), { is: "new" });
  t.answers.refused = 3;
  const started = t.start();
  await t.clock.advance(5_000);
  assert.deepEqual(await started, tunneled);
});

for (const claimed of ["tunneled", "new"] as const)
  test(`keeps a node isolated according to its Node's annotation if the record is changed from isolated to ${claimed}`, async () => {
    const t = setUp({ programs: ["python3"] });
    assert.equal((await t.start())?.isolated, true);
    t.shown.annotations = {};
    await t.start();
    assert.deepEqual(t.shown.annotations, { "graftlet.dev/pod-network": "isolated" });
    t.install("nft");
    await writeOwnershipRecord(t.host.fs, rootDir, { node: "edge-1", made: [], network: { is: claimed } }, never);
    const { isolated, tunneled: is, obstacle } = (await t.start()) ?? {};
    assert.deepEqual([isolated, is], [true, undefined]);
    assert.match(obstacle ?? "", /annotation graftlet\.dev\/pod-network; set network: tunneled to reach/);
    assert.deepEqual(await t.start(tunneled), tunneled, "the configuration's value wins");
  });

test("uses the recorded network mode if the API server is unreachable for 10 s after a start", async () => {
  const t = setUp();
  t.shown.annotations = {};
  await t.start();
  t.answers.refused = 1_000;
  const started = t.start();
  await t.clock.advance(15_000);
  assert.deepEqual(await started, tunneled);
});
