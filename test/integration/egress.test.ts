import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { certificatesIn, issue, type KeyPair, pairIn } from "../harness/certificates.ts";
import { apiServerNames, egressThrough, secondApiServerArgv } from "../harness/control-plane.ts";
import { type EgressServer, findEgressServer, startEgressServer } from "../harness/egress-server.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { addresses, networkArgv } from "../harness/namespaces.ts";
import { must, start } from "../harness/processes.ts";
import { eachIsReached, runOnFurtherNodes } from "./helm/further-nodes.ts";
import { type Release, releaseOf } from "./helm/release.ts";

/** Where another API server is, and what takes tunnels for it. */
const secondAddress = "10.10.0.3";

describe("an API server that reaches kubelets only through egress tunnels", { timeout: 600_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let program: string;
  let server: EgressServer | undefined;
  /** Of the other API server: that which takes tunnels, and itself. */
  let second: { readonly server: EgressServer; readonly api: ChildProcess } | undefined;
  const names = Array.from({ length: 10 }, (_, index) => `edge-${index + 1}`);
  const nodesFile = () => join(lab.cluster.layout.dir, "egress-nodes");

  /** Starts what takes tunnels at an address. */
  const startTunnels = (address: string, socket: string, serving: KeyPair): EgressServer => {
    const { layout } = lab.cluster;
    rmSync(socket, { force: true });
    const at = { listen: `${address}:9345`, path: "/v1-rke2/connect", connect: `unix:${socket}`, direct: false };
    const keys = { serving, ca: certificatesIn(layout.pki).ca };
    return startEgressServer(program, { ...at, nodes: nodesFile() }, keys, (argv) => networkArgv(layout, argv));
  };
  const startServer = () => {
    const { layout } = lab.cluster;
    const socket = join(layout.dir, "egress.sock");
    server = startTunnels(addresses.node, socket, certificatesIn(layout.pki).apiServer);
    return socket;
  };
  /** Starts another API server beside the first, with tunnels of its own. */
  const startSecond = async () => {
    const { cluster } = lab;
    const { layout, tools } = cluster;
    const serving = pairIn(layout.pki, "second-apiserver");
    const kept = [...apiServerNames, `IP:${secondAddress}`];
    await issue(serving, certificatesIn(layout.pki).ca, {
      commonName: "kube-apiserver",
      names: kept,
      usage: "serverAuth",
    });
    const own = `${secondAddress}/${addresses.nodePrefix}`;
    await must(networkArgv(layout, ["ip", "addr", "add", own, "dev", "node0"]));
    const udsName = join(layout.dir, "second-egress.sock");
    const tunnels = startTunnels(secondAddress, udsName, serving);
    const argv = secondApiServerArgv(tools, layout, { address: secondAddress, serving, udsName });
    second = { server: tunnels, api: start(networkArgv(layout, argv), { stdio: "ignore" }) };
  };
  /** Tells the servers which addresses the nodes have, as k3s learns it from the Nodes. */
  const tellAddresses = async () => {
    const { items } = JSON.parse(await lab.cluster.mustKubectl(["get", "nodes", "-ojson"])) as {
      items: readonly Node[];
    };
    const lines = items.flatMap(({ metadata, status }) =>
      (status?.addresses ?? []).map(({ address }) => `${address} ${metadata.name}\n`),
    );
    writeFileSync(nodesFile(), lines.join(""));
  };
  const reachable = async (name?: string) =>
    (await edge.node(name))?.status?.conditions?.find(({ type }) => type === "KubeletReachable");

  before(async () => {
    program = await findEgressServer();
    lab = await startHelmLab("egress", { say: (line) => console.error(line) });
    edge = releaseOf(lab);
    const socket = startServer();
    egressThrough(lab.cluster.layout, socket);
    await lab.cluster.stopApiServer();
    await lab.cluster.startApiServer();
  });
  after(async () => {
    if (second?.api.kill("SIGKILL")) await once(second.api, "exit");
    await second?.server.kill();
    await server?.kill();
    await lab?.[Symbol.asyncDispose]();
  });

  test("serves logs, exec, attach and port-forward through the node's own tunnel, and reports the tunnel in the condition", async () => {
    await edge.install("--set=egressTunnel=rke2");
    await edge.runWorkload();
    await edge.reachIn();
    await lab.cluster.waitFor("the condition", async () => (await reachable())?.status === "True", 60_000);
    assert.match((await reachable())?.message ?? "", new RegExp(`through a tunnel .from ${addresses.node}:9345.$`));
  });

  test("logs recover after an outage of the tunnel server", async () => {
    const log = () => lab.cluster.kubectl(["get", "--raw", `/api/v1/nodes/${release.node}/proxy/healthz`]);
    assert.equal((await log()).code, 0);
    await server?.kill();
    assert.notEqual((await log()).code, 0);
    startServer();
    await lab.cluster.waitFor("the tunnel", async () => (await log()).code === 0, 20_000);
    await edge.reachIn();
  });

  test("reaches ten nodes of one release, each through its own tunnel", async () => {
    await runOnFurtherNodes(lab, names.slice(1), ["--set=egressTunnel=rke2"]);
    await tellAddresses();
    await eachIsReached(lab.cluster, names);
    for (const name of names) {
      const told = async () => new RegExp(`from ${addresses.node}:9345`).test((await reachable(name))?.message ?? "");
      await lab.cluster.waitFor(`the condition of ${name}`, told, 60_000);
    }
  });

  test("reaches each of ten nodes again after the tunnel server restarts", async () => {
    await server?.kill();
    startServer();
    await eachIsReached(lab.cluster, names);
  });

  test("reaches each of ten nodes from each of two API servers", async () => {
    await startSecond();
    await eachIsReached(lab.cluster, names, `https://${secondAddress}:${addresses.apiServerPort}`);
    await eachIsReached(lab.cluster, names);
  });

  test("without tunnels, reaches no kubelet, and the condition says what to check", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=egressTunnel=none"]);
    await lab.cluster.waitFor("the condition", async () => (await reachable())?.reason === "NoRoute", 60_000);
    assert.match((await reachable())?.message ?? "", /egress tunnel/);
  });
});
