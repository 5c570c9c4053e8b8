import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { HostProcess } from "../../src/seams/host.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import { nodeReady } from "../harness/agent.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { must } from "../harness/processes.ts";
import { makeKey } from "../harness/sshd.ts";
import { type Release, inNamespace, releaseOf } from "./helm/release.ts";
import { standing } from "./helm/workload.ts";
import { argvOf } from "../harness/argv.ts";

const nodePort = 30022;
const { target, agent, sshPort } = agentAddresses;
/** What the chart's values say of the listener. */
const listener = [
  "reverse.existingSecret=listener",
  "reverse.service.type=NodePort",
  `reverse.service.nodePort=${nodePort}`,
];

describe("a release whose machine opens a reverse tunnel", { timeout: 600_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let unit: HostProcess | undefined;

  const keyFile = (name: string) => join(lab.cluster.layout.dir, "dialling", name);
  const publicKey = (name: string) => readFileSync(`${keyFile(name)}.pub`, "utf8");
  const ready = async () => (await edge.node())?.status?.conditions?.find(({ type }) => type === "Ready");
  /** What systemd keeps running on the machine. */
  const dialIn = async () => {
    const options = [
      ..."BatchMode=yes IdentitiesOnly=yes ExitOnForwardFailure=yes ServerAliveInterval=5 ConnectTimeout=5 HostKeyAlias=listener".split(
        " ",
      ),
      `UserKnownHostsFile=${keyFile("known")}`,
    ].map((option) => `-o ${option}`);
    const ssh = `ssh -F none -N -R 22:${target}:${sshPort} -p ${nodePort} -i ${keyFile("machine")} ${options.join(" ")} graftlet@${agent}`;
    unit = await lab.edge.host.spawn(argvOf(["sh", "-c", `while :; do ${ssh}; sleep 1; done`]));
    unit.stdout.resume();
    unit.stderr.resume();
  };

  before(async () => {
    lab = await startHelmLab("reverse", { bare: true, say: (line) => console.error(line) });
    const { cluster } = lab;
    mkdirSync(join(cluster.layout.dir, "dialling"), { mode: 0o700 });
    await Promise.all([makeKey(keyFile("listener")), makeKey(keyFile("machine"))]);
    await must(["sh", "-c", `echo "listener $(cat ${keyFile("listener")}.pub)" > ${keyFile("known")}`]);
    // Nobody can dial the machine: what begins with somebody else is dropped.
    await lab.edge.mustInside([
      "nft",
      "add table inet nat; add chain inet nat in { type filter hook input priority 0; policy drop; }; add rule inet nat in iif lo accept; add rule inet nat in ct state established,related accept",
    ]);
    await cluster.mustKubectl(["create", "namespace", release.namespace]);
    const secret = (name: string, stringData: Readonly<Record<string, string>>) => ({
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name, namespace: release.namespace },
      stringData,
    });
    const { "ssh-privatekey": login } = lab.edge.login;
    await cluster.apply([
      secret("listener", { "ssh-privatekey": readFileSync(keyFile("listener"), "utf8") }),
      secret(release.secret, {
        "ssh-privatekey": login,
        known_hosts: `[${release.node}]:${sshPort} ${lab.edge.login.known_hosts.split(" ").slice(1).join(" ")}`,
        authorized_keys: publicKey("machine"),
      }),
    ]);
    edge = releaseOf(lab);
  });
  after(async () => {
    unit?.kill("SIGKILL");
    await lab?.[Symbol.asyncDispose]();
  });

  test("registers with ReverseTunnelDown, and becomes ready as soon as the tunnel is up", async () => {
    const { cluster } = lab;
    const settings = [
      `nodes[0].name=${release.node}`,
      `nodes[0].ssh.existingSecret=${release.secret}`,
      "nodes[0].ssh.reverse=true",
      ...listener,
      "onUninstall=drain",
    ].map((setting) => `--set=${setting}`);
    await lab.mustHelm(["install", release.name, chart, inNamespace, `--values=${lab.values}`, ...settings]);
    await cluster.waitFor("the condition", async () => (await ready())?.reason === "ReverseTunnelDown", {
      explain: edge.log,
    });
    assert.match((await ready())?.message ?? "", /edge-1 has not connected yet/);
    await dialIn();
    await nodeReady(cluster, release.node);
    await edge.runWorkload();
    await edge.reachIn();
  });

  test("the machine connects to graftlet's next Pod, without an effect on pods", async () => {
    await edge.unnoticed(() =>
      lab.cluster.mustKubectl(["rollout", "restart", inNamespace, "deployment/edge-graftlet"]),
    );
  });

  test("pods survive half a minute without the tunnel", async () => {
    const before = await standing(lab.cluster);
    await lab.edge.unplug();
    await lab.cluster.waitFor("the loss", async () => (await ready())?.status !== "True", { timeoutMs: 60_000 });
    await new Promise((resolve) => setTimeout(resolve, 15_000));
    await lab.edge.plug();
    await nodeReady(lab.cluster, release.node);
    assert.deepEqual(await standing(lab.cluster), before);
  });

  test("uninstall with drain also works through the tunnel, and leaves nothing behind", async () => {
    const marker = randomUUID();
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=5m", `--description=${marker}`], {
      timeoutMs: 320_000,
    });
    assert.equal(await edge.node(), undefined);
    assert.deepEqual(lab.edge.podProcesses(), []);
  });

  test("a GraftedNode is served through the tunnel, and its machine is cleaned through it", async () => {
    const { cluster } = lab;
    const settings = ["fleet.enabled=true", "fleet.nodeNames={edge-*}", ...listener];
    const set = settings.map((setting) => `--set=${setting}`);
    await lab.mustHelm(["install", release.name, chart, inNamespace, "--wait", "--timeout=120s", ...set]);
    const { kubeletConfiguration } = lab.edge;
    const ssh = { port: sshPort, secretRef: { name: release.secret }, reverse: {} };
    await cluster.apply({
      apiVersion: "graftlet.dev/v1alpha1",
      kind: "GraftedNode",
      metadata: { name: release.node, namespace: release.namespace },
      spec: { ssh, network: "isolated", kubeletConfiguration },
    });
    const machine = `gn/${release.node}`;
    await cluster.mustKubectl(["wait", "--for=condition=Ready", machine, inNamespace, "--timeout=90s"]);
    await edge.runWorkload();
    await edge.reachIn();
    await cluster.mustKubectl(["delete", machine, inNamespace, "--timeout=120s"]);
    assert.equal(await edge.node(), undefined);
    assert.deepEqual(lab.edge.podProcesses(), []);
  });
});
