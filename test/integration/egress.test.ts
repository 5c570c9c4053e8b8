import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { certificatesIn } from "../harness/certificates.ts";
import { egressThrough } from "../harness/control-plane.ts";
import { type EgressServer, findEgressServer, startEgressServer } from "../harness/egress-server.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { addresses, networkArgv } from "../harness/namespaces.ts";
import { type Release, releaseOf } from "./helm/release.ts";

describe("an API server that reaches kubelets through tunnels alone", { timeout: 600_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let program: string;
  let server: EgressServer | undefined;

  const startServer = () => {
    const { layout } = lab.cluster;
    const { ca, apiServer: serving } = certificatesIn(layout.pki);
    const socket = join(layout.dir, "egress.sock");
    rmSync(socket, { force: true });
    const at = { listen: `${addresses.node}:9345`, path: "/v1-rke2/connect", connect: `unix:${socket}`, direct: false };
    server = startEgressServer(program, at, { serving, ca }, (argv) => networkArgv(layout, argv));
    return socket;
  };
  const reachable = async () =>
    (await edge.node())?.status?.conditions?.find(({ type }) => type === "KubeletReachable");

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
    await server?.kill();
    await lab?.[Symbol.asyncDispose]();
  });

  test("logs, exec, attach and port-forward go through the node's own tunnel, and the condition says so", async () => {
    await edge.install("--set=egressTunnel=rke2");
    await edge.runWorkload();
    await edge.reachIn();
    await lab.cluster.waitFor("the condition", async () => (await reachable())?.status === "True", 60_000);
    assert.match((await reachable())?.message ?? "", new RegExp(`through a tunnel .from ${addresses.node}:9345.$`));
  });

  test("the server away: logs fail; it is back, and so are they", async () => {
    const log = () => lab.cluster.kubectl(["get", "--raw", `/api/v1/nodes/${release.node}/proxy/healthz`]);
    assert.equal((await log()).code, 0);
    await server?.kill();
    assert.notEqual((await log()).code, 0);
    startServer();
    await lab.cluster.waitFor("the tunnel", async () => (await log()).code === 0, 20_000);
    await edge.reachIn();
  });

  test("without tunnels nothing leads there, and the condition says what to look at", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=egressTunnel=none"]);
    await lab.cluster.waitFor("the condition", async () => (await reachable())?.reason === "NoRoute", 60_000);
    assert.match((await reachable())?.message ?? "", /egress tunnel/);
  });
});
