import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type GraftedNode, isReadyWithOwner } from "../../src/fleet/grafted-node.ts";
import type { Pod } from "../../src/objects.ts";
import type { HostProcess } from "../../src/seams/host.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import { nodeReady } from "../harness/agent.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { must } from "../harness/processes.ts";
import { images } from "../harness/pods.ts";
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

/** Runs a command on the machine that may change /etc: it sees a copy of it.
 *  @param directory where the command runs, with the machine's public host key in host.pub. */
const apart = (directory: string, command: string) => {
  const steps = [
    `cd ${directory}`,
    "mkdir -p up && mount -t tmpfs tmpfs up && mkdir up/etc up/work",
    "mount -t overlay overlay -o lowerdir=/etc,upperdir=up/etc,workdir=up/work /etc",
    "mkdir -p /etc/ssh && rm -f /etc/ssh/ssh_host_* && cp host.pub /etc/ssh/ssh_host_ed25519_key.pub",
    command,
  ];
  return ["unshare", "-m", "sh", "-c", steps.join(" && ")];
};

describe("a release whose machine opens a reverse tunnel", { timeout: 600_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let unit: HostProcess | undefined;
  /** The command by which the enrolled machine keeps its reverse tunnel open. */
  let tunnel = "";

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
    await keepRunning(ssh);
  };

  /** Keeps a command of the machine running, in place of the previous one. */
  const keepRunning = async (command: string) => {
    unit?.kill("SIGKILL");
    unit = await lab.edge.host.spawn(argvOf(["sh", "-c", `while :; do ${command}; sleep 1; done`]));
    unit.stdout.resume();
    unit.stderr.resume();
  };
  const machine = `gn/${release.node}`;
  const object = async () =>
    JSON.parse(await lab.cluster.mustKubectl(["get", machine, inNamespace, "--output=json"])) as GraftedNode;
  const condition = async (type: string) => (await object()).status?.conditions?.find((one) => one.type === type);
  /** Waits until a Pod for which `isWanted` is true owns the machine, and its kubelet API answers. @returns the Pod's name. */
  const untilServed = (pod: string, isWanted: (replica: string) => boolean, timeoutMs: number) =>
    lab.cluster.waitFor(
      "the machine to be served by the Pod to which it has connected",
      async () => {
        const now = await object();
        const replica = now.status?.owner?.replica;
        if (replica === undefined || !isReadyWithOwner(now) || !isWanted(replica)) return undefined;
        // While it still leads to the previous Pod, the connection hangs.
        const { code } = await lab.cluster.kubectl(["exec", pod, "--", "true"], { timeoutMs: 3_000 });
        return code === 0 ? replica : undefined;
      },
      { timeoutMs, explain: edge.log },
    );

  /** Identifies the running container of a pod. */
  const container = async (pod: string) => {
    const [status] = (await lab.cluster.get<Pod>("pod", pod))?.status?.containerStatuses ?? [];
    return [status?.containerID, status?.restartCount, status?.state?.running?.startedAt];
  };

  /** Runs a pod on the machine, and reads its log. */
  const answers = async (name: string) => {
    const { cluster } = lab;
    await cluster.apply({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name },
      spec: {
        nodeName: release.node,
        tolerations: [{ operator: "Exists" }],
        terminationGracePeriodSeconds: 1,
        containers: [{ name: "c", image: images.busybox, command: ["sh", "-c", "echo started; sleep 3600"] }],
      },
    });
    await cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=60s"]);
    assert.equal(await cluster.mustKubectl(["logs", name]), "started\n");
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

  test("the machine connects to graftlet's next Pod, without affecting the node's pods", async () => {
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
    const settings = ["fleet.enabled=true", "fleet.nodeNames={edge-*}", "replicas=3", ...listener];
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
    await cluster.mustKubectl(["wait", "--for=condition=Ready", machine, inNamespace, "--timeout=90s"]);
    await answers("first");
    await cluster.mustKubectl(["delete", machine, inNamespace, "--timeout=120s"]);
    assert.equal(await edge.node(), undefined);
    assert.deepEqual(lab.edge.podProcesses(), []);
  });

  test("a machine enrols with a token, and is served once its host key is approved", async () => {
    const { cluster } = lab;
    unit?.kill("SIGKILL");
    unit = undefined;
    const login = { "ssh-privatekey": lab.edge.login["ssh-privatekey"] };
    const { kubeletConfiguration } = lab.edge;
    await cluster.apply([
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name: "login", namespace: release.namespace },
        stringData: login,
      },
      {
        apiVersion: "graftlet.dev/v1alpha1",
        kind: "GraftedNode",
        metadata: { name: release.node, namespace: release.namespace },
        spec: {
          ssh: { port: sshPort, secretRef: { name: "login" }, reverse: {} },
          network: "isolated",
          kubeletConfiguration,
        },
      },
    ]);
    const says = (reason: string) =>
      cluster.mustKubectl([
        "wait",
        `--for=jsonpath={.status.conditions[?(@.type=="Accepted")].reason}=${reason}`,
        machine,
        inNamespace,
        "--timeout=60s",
      ]);
    await says("MachineKeyMissing");
    const enrol = ["graftlet", "enrol", release.node, `--address=${agent}:${nodePort}`];
    const script = await cluster.mustKubectl(["exec", inNamespace, "deploy/edge-graftlet", "--", ...enrol]);
    const own = join(cluster.layout.dir, "enrolling");
    mkdirSync(own, { mode: 0o700 });
    writeFileSync(join(own, "enrol.sh"), script);
    writeFileSync(join(own, "host.pub"), `${lab.edge.login.known_hosts.trim().split(" ").slice(1, 3).join(" ")}\n`);
    const kept =
      "/etc/graftlet-machine /etc/graftlet-listener $(getent passwd root | cut -d: -f6)/.ssh/authorized_keys";
    const said = await lab.edge.mustInside(apart(own, `sh enrol.sh && cp ${kept} .`));
    assert.match(said, /the machine has enrolled as edge-1; there is no systemd/);
    const authorized = readFileSync(join(own, "authorized_keys"), "utf8").trim().split("\n").at(-1) ?? "";
    assert.match(authorized, /^ssh-\S+ \S+ graftlet$/);
    await says("EnrolmentPending");
    // The token has been used.
    assert.match(await lab.edge.mustInside(apart(own, "sh enrol.sh 2>&1 || true")), /Permission denied/);

    tunnel = (said.trim().split("\n").at(-1) ?? "")
      .replace("22:127.0.0.1:22", `22:${target}:${sshPort}`)
      .replaceAll("/etc/graftlet-", `${own}/graftlet-`);
    await keepRunning(tunnel);
    const message = (await condition("Accepted"))?.message ?? "";
    const approval = /graftlet\.dev\/approve-host-key=SHA256:\S+/.exec(message)?.[0];
    assert.ok(approval, message);
    await cluster.mustKubectl(["annotate", machine, inNamespace, approval]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", machine, inNamespace, "--timeout=90s"]);
    await answers("second");
  });

  test("the Pod to which the machine connects serves it, and no container restarts", async () => {
    const running = await container("second");
    const first = await untilServed("second", () => true, 60_000);
    let owner = first;
    for (let times = 0; owner === first && times < 10; times += 1) {
      await keepRunning(tunnel);
      owner = await untilServed("second", (replica) => replica !== first, 12_000).catch(() => first);
    }
    assert.notEqual(owner, first, "it has never connected to another Pod");
    assert.deepEqual(await container("second"), running);
  });

  test("the machine connects to another Pod when its own is killed, and is served again within 30 s", async () => {
    const { cluster } = lab;
    const running = await container("second");
    const killed = (await object()).status?.owner?.replica ?? "";
    const began = performance.now();
    await cluster.mustKubectl(["delete", "pod", killed, inNamespace, "--grace-period=0", "--force"]);
    await untilServed("second", (replica) => replica !== killed, 60_000);
    const tookMs = performance.now() - began;
    console.log(`the machine of a Pod that was killed was served again after ${(tookMs / 1_000).toFixed(1)} s`);
    assert.ok(tookMs < 30_000, String(tookMs));
    assert.deepEqual(await container("second"), running);
    await cluster.mustKubectl(["delete", machine, inNamespace, "--timeout=120s"]);
  });
});
