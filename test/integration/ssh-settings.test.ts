import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, NodeCondition } from "../../src/objects.ts";
import { type Agent, type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { shell } from "../harness/pods.ts";
import { remoteProviderUnderTest } from "../harness/runtime-daemon.ts";
import { curl, forward } from "./kubectl/port-forward.ts";
import { transports } from "./kubectl/transports.ts";

let lab: Lab;
let agent: Agent;

before(async () => {
  lab = await startLab("ssh-settings", { provider: remoteProviderUnderTest() });
  agent = lab.agent;
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

async function readyCondition(): Promise<NodeCondition | undefined> {
  const node = await lab.cluster.get<Node>("node", lab.cluster.nodeName);
  return node?.status?.conditions?.find(({ type }) => type === "Ready");
}

/** Waits for the node's Ready condition to say so, and returns its message. */
async function nodeSays(status: string, reason: string, message = /^/): Promise<string> {
  const found = await lab.cluster.waitFor(
    `the node's Ready condition to be ${status} for ${reason}`,
    async () => {
      const now = await readyCondition();
      return now?.status === status && now.reason === reason && message.test(now.message ?? "") && now;
    },
    {
      timeoutMs: 60_000,
      explain: async () => `${JSON.stringify(await readyCondition())}\n${agent.log().slice(-3000)}`,
    },
  );
  return found.message ?? "";
}

const nodeIsReady = () => nodeSays("True", "KubeletReady");

async function restartSshd(lines: readonly string[] = []): Promise<void> {
  await lab.cluster.killSshd();
  await nodeSays("False", "LinkDown");
  await lab.cluster.startSshd(lines);
}

/** Starts graftlet anew; it goes on while the test spoils and mends its target. */
async function restart(options: AgentOptions = {}): Promise<void> {
  assert.equal(await agent.stop(), true);
  agent = await startGraftlet(lab.cluster, { untilReady: false, ...options });
}

const server = shell("mkdir /www; echo hello > /www/hello; exec busybox httpd -f -p 9000 -h /www", {
  readinessProbe: { httpGet: { path: "/hello", port: 9000 }, periodSeconds: 1 },
});

describe("an sshd with unusual settings", { timeout: 800_000 }, () => {
  const settings = ["AllowTcpForwarding no", "AllowStreamLocalForwarding no", "DisableForwarding yes"];
  for (const [index, setting] of [...settings, "MaxSessions 1", "MaxSessions 2", "MaxSessions 3"].entries())
    test(`with ${setting}, a pod starts, is probed, supports exec and port-forward, and terminates`, async () => {
      const { cluster, pods } = lab;
      await restartSshd([setting]);
      await nodeIsReady();
      const [name, refused] = [`served-${index}`, `refused-${index}`];
      await pods.create(name, { containers: [server] });
      await pods.create(refused, { containers: [{ readinessProbe: { tcpSocket: { port: 9 }, periodSeconds: 1 } }] });
      const { podIP } = (await pods.ready(name)).status ?? {};
      assert.equal(
        await cluster.mustKubectl(["exec", name, "--", "sh", "-c", "echo from $HOSTNAME"]),
        `from ${name}\n`,
      );
      await using tunnel = await forward(lab, name, transports[0].env);
      assert.equal((await curl(lab, [`http://127.0.0.1:${tunnel.port}/hello`])).stdout, "hello\n");
      assert.ok(podIP);
      await pods.event(
        refused,
        "Unhealthy",
        /^Readiness probe failed: dial tcp [\d.]+:9: connect: connection refused$/,
      );
      await Promise.all([name, refused].map((pod) => pods.remove(pod, 1)));
    });

  test("the default sshd settings work again after the unusual ones", async () => {
    await restartSshd();
    await nodeIsReady();
  });
});

describe("a target on which a node cannot start", { timeout: 800_000 }, () => {
  test("reports an sshd that allows no sessions, and is Ready once it allows them; graftlet keeps running", async () => {
    const { cluster } = lab;
    await restartSshd(["MaxSessions 0"]);
    await nodeSays("False", "NoSessions");
    await restart();
    const message = await nodeSays("False", "NoSessions");
    assert.match(message, /^the target's sshd allows no sessions: set MaxSessions to 10 .* \(since \S+Z\)$/);
    assert.match(agent.log(), /"reason":"NoSessions"/);
    await cluster.killSshd();
    await cluster.startSshd();
    await nodeIsReady();
    assert.ok(agent.isRunning());
  });

  test("reports a hanging login shell within seconds, and is Ready once it works", async () => {
    const { cluster } = lab;
    const startUp = join(cluster.layout.ssh, "home", ".bashrc");
    writeFileSync(startUp, "sleep 600\n");
    await cluster.mustKubectl(["delete", "node", cluster.nodeName, "--wait=true"]);
    const began = performance.now();
    await restart();
    const message = await nodeSays("False", "LoginShellTimeout");
    assert.match(message, /^the login shell of root@10\.10\.9\.1:2222 does not answer within 15 s: check /);
    assert.ok(performance.now() - began < 60_000);
    rmSync(startUp);
    await nodeIsReady();
  });

  test("lists the sockets tried if no runtime answers, and is Ready once one does", async () => {
    const { cluster } = lab;
    const socket = "/run/runtime-to-come.sock";
    await restart({ providerConfig: { runtime: `unix://${socket}` } });
    await nodeSays(
      "False",
      "KubeletNotReady",
      /container runtime is down: no container runtime answers on the target, tried \/run\/runtime-to-come\.sock \(does not exist\): start containerd, CRI-O or Docker there, or set its socket in providerConfig\.runtime\./,
    );
    await cluster.runInside(["ln", "-s", cluster.runtimeSocket, socket]);
    await nodeIsReady();
  });

  test("reports a root directory without free space, and is Ready once there is some", async () => {
    const { cluster } = lab;
    const rootDir = join(cluster.layout.dir, "small");
    mkdirSync(rootDir);
    await cluster.runInside(["mount", "-n", "-t", "tmpfs", "-o", "size=64k,nr_inodes=5", "tmpfs", rootDir]);
    // A node that was there before is not refused for a root directory in memory.
    const record = JSON.stringify({ version: 1, node: cluster.nodeName, made: [] });
    const fill = 'mkdir "$1/graftlet"; echo "$2" > "$1/graftlet/node.json"; touch "$1/a" "$1/b"';
    await cluster.runInside(["sh", "-ec", fill, "sh", rootDir, record]);
    await restart({ providerConfig: { rootDir } });
    const message = await nodeSays("False", "RootDirFull");
    assert.match(
      message,
      /^--root-dir ".*\/small" has no space left \(.*No space left on device\): free some on the target/,
    );
    await cluster.runInside(["mount", "-n", "-o", "remount,size=64m,nr_inodes=1000", rootDir]);
    await nodeIsReady();
  });

  for (const { name, providerConfig, sentence } of [
    {
      name: "an address without a machine",
      providerConfig: { host: "10.10.9.77" },
      sentence: /^root@10\.10\.9\.77:2222 cannot be reached \(.*\): no route to host: check host, and that the machine/,
    },
    {
      name: "a host name that does not exist",
      providerConfig: { host: "no-such-machine.invalid" },
      sentence:
        /^root@no-such-machine\.invalid:2222 cannot be reached \(.*\): .*looked up on graftlet's machine: check/,
    },
  ])
    test(`the Node reports what to check for ${name}`, async () => {
      await restart({ providerConfig });
      await nodeSays("False", "LinkDown", sentence);
      assert.ok(agent.isRunning());
    });
});
