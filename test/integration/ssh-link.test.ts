import assert from "node:assert/strict";
import { appendFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { ContainerState, Node } from "../../src/objects.ts";
import { agentAddresses, targetFolders } from "../harness/agent-machine.ts";
import { converse } from "../harness/conversation.ts";
import { type LinkLab, startLinkLab, tolerations } from "../harness/link-lab.ts";
import { addresses } from "../harness/namespaces.ts";
import { condition, firstProcess, shell, statusOf } from "../harness/pods.ts";
import { must } from "../harness/processes.ts";
import { cutSsh } from "../harness/ssh-way.ts";
import { makeKey, sshdConnections } from "../harness/sshd.ts";
import { transports } from "./kubectl/transports.ts";

let lab: LinkLab;

before(async () => {
  lab = await startLinkLab("ssh-link");
});
after(async () => {
  await lab?.[Symbol.asyncDispose]();
});

/** How a container ended, which was at about `at`, in seconds since the epoch, by the runtime's own time. */
function endIn(state: ContainerState | undefined, at: number): NonNullable<ContainerState["terminated"]> {
  const end = state?.terminated;
  assert.ok(end);
  assert.ok(Math.abs(secondsOf(end.finishedAt) - at) < 5, `ended at ${at}: ${end.finishedAt}`);
  return end;
}

const secondsOf = (text: string | undefined): number => Date.parse(text ?? "") / 1000;

describe("graftlet on one machine, its pods on another", { timeout: 800_000 }, () => {
  test("reaches the target only over SSH; the Node has graftlet's address, and the pods' host IP is the target's", async () => {
    const { cluster } = lab;
    const root = `/proc/${lab.agent().pid}/root`;
    const steady = await lab.pods.ready("steady");
    assert.ok(readdirSync(join(cluster.layout.kubeletRoot, "pods")).includes(steady.metadata.uid));
    assert.ok(targetFolders(cluster.layout).includes(cluster.layout.kubeletRoot));
    // The certificate of the kubelet API is graftlet's own and stays with it.
    const own = "/var/lib";
    for (const folder of targetFolders(cluster.layout))
      if (folder !== own) assert.deepEqual(readdirSync(join(root, folder)), [], folder);
    assert.deepEqual(
      readdirSync(join(root, own), { recursive: true }).filter((path) => !/^kubelet(\/pki|$)/.test(String(path))),
      [],
    );
    assert.equal(existsSync(join(root, cluster.runtimeSocket)), false);
    const peers = await cluster.runAtAgent(["ss", "-Htn", "state", "established"]);
    const ports = peers.stdout
      .trim()
      .split("\n")
      .map((line) => line.trim().split(/\s+/).slice(2));
    for (const [local = "", remote = ""] of ports)
      assert.ok(
        remote === `${agentAddresses.target}:${agentAddresses.sshPort}` ||
          remote === `${addresses.node}:${addresses.apiServerPort}` ||
          local.endsWith(":10250"),
        `${local} ${remote}`,
      );
    const node = await cluster.get<Node>("node", cluster.nodeName);
    assert.deepEqual(node?.status?.addresses?.[0], { type: "InternalIP", address: cluster.agentAddress });
    assert.notEqual(cluster.agentAddress, cluster.nodeAddress);
    assert.equal(steady.status?.hostIP, cluster.nodeAddress);
    assert.equal(await lab.pods.log("steady"), "");
  });

  test("a link cut for a minute is reported and ends no pod; exits meanwhile are reported, and containers restarted", async () => {
    const { cluster, pods } = lab;
    await pods.create("victim", {});
    await pods.create("leaver", {});
    await pods.create("counter", { containers: [shell("i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done")] });
    await Promise.all([pods.ready("counter"), pods.ready("leaver")]);
    await using follower = converse(cluster.startKubectl(["logs", "--follow", "counter"]));
    await follower.says("20\n");
    const sessions = transports.map(({ env }) =>
      converse(cluster.startKubectl(["exec", "steady", "--", "sh", "-c", "echo begun; sleep 1000"], { env })),
    );
    for (const session of sessions) await session.says("begun");
    await pods.create("task", { restartPolicy: "Never", containers: [shell("sleep 12; exit 7")] });
    const [victim, task] = await Promise.all([
      pods.ready("victim"),
      pods.until("task", "to run", ({ status }) => status?.phase === "Running"),
    ]);
    const endsAt = secondsOf(statusOf(task)?.state?.running?.startedAt) + 12;
    const cutAt = Date.now();
    await using cut = await cutSsh(cluster);
    await cluster.mustKubectl(["patch", "configmap", "steady", "--patch", '{"data":{"word":"after"}}']);
    const down = await lab.nodeSays("False", "LinkDown");
    const since = /^the connection to root@10\.10\.9\.1:2222 is lost: .+ \(since (\S+Z)\)$/.exec(down.message)?.[1];
    assert.ok(Math.abs(secondsOf(since) - cutAt / 1000) <= 20, down.message);
    await must(["kill", "-9", String(firstProcess(cluster, victim))]);
    const killedAt = Date.now() / 1000;
    await pods.create("late", {});
    await pods.remove("leaver");
    const heard = follower.stdout();
    await cluster.waitFor("a minute without a link", () => Date.now() >= cutAt + 60_000, { timeoutMs: 90_000 });
    const last = await lab.ready();
    assert.deepEqual([last?.status, last?.reason], ["False", "LinkDown"]);
    assert.equal(follower.stdout(), heard);
    for (const session of sessions) {
      assert.equal(await session.ended(5_000), 1);
      assert.match(session.stderr(), /the connection to the container was lost/);
    }
    for (const name of ["steady", "victim", "task", "counter", "leaver"]) {
      const pod = pods.history(name).at(-1);
      assert.deepEqual([name, pod?.status?.phase, pod && statusOf(pod)?.restartCount], [name, "Running", 0]);
    }

    const left = pods.gone("leaver");
    await cut.mend();
    const up = await lab.nodeSays("True", "KubeletReady");
    const [again, ended] = await Promise.all([
      pods.until("victim", "to run again", (pod) => statusOf(pod)?.restartCount === 1 && !!statusOf(pod)?.ready),
      pods.until("task", "to have failed", ({ status }) => status?.phase === "Failed"),
      pods.ready("late"),
      left,
    ]);
    const killed = endIn(statusOf(again)?.lastState, killedAt);
    assert.deepEqual([killed.exitCode, killed.containerID], [137, statusOf(victim)?.containerID]);
    assert.equal(endIn(statusOf(ended)?.state, endsAt).exitCode, 7);
    assert.equal(statusOf(await pods.ready("victim"))?.restartCount, 1);
    const now = (await pods.log("counter", "tailLines=1")).trim();
    await follower.says(`\n${now}\n`);
    const lines = follower.stdout().trimEnd().split("\n");
    assert.deepEqual(
      lines,
      lines.map((_, index) => String(index)),
    );
    const seen = () => cluster.mustKubectl(["exec", "steady", "--", "cat", "/config/word", "/secret/word"]);
    await cluster.waitFor("the configuration that changed meanwhile", async () => (await seen()) === "afterbefore");
    await lab.steadyStands();
    console.log(`cut link: NotReady after ${down.ms} ms; back: Ready after ${up.ms} ms`);
    assert.ok(up.ms < 30_000);
  });

  test("a restarted sshd makes the node NotReady at once and Ready within seconds, with the same containers", async () => {
    const { cluster } = lab;
    await cluster.killSshd();
    const down = await lab.nodeSays("False", "LinkDown", 10_000);
    await cluster.startSshd();
    const up = await lab.nodeSays("True", "KubeletReady");
    console.log(`sshd killed: NotReady after ${down.ms} ms; started: Ready after ${up.ms} ms`);
    await lab.steadyStands();
  });

  test("registers the Node with a remedy when sshd is down at the start, and becomes Ready by itself", async () => {
    const { cluster } = lab;
    await cluster.killSshd();
    await lab.nodeSays("False", "LinkDown", 30_000);
    await lab.pods.create("waiting", { nodeName: cluster.nodeName, tolerations });
    // A pod that waits for its target holds up no end.
    assert.equal(await lab.agent().stop(10_000), true);
    await cluster.mustKubectl(["delete", "node", cluster.nodeName, "--wait=true"]);
    await lab.start({ untilReady: false });
    const { message } = await lab.nodeSays("False", "LinkDown");
    assert.match(message, /^root@10\.10\.9\.1:2222 cannot be reached .*: check port, and that sshd runs\. \(since /);
    await cluster.startSshd();
    await lab.nodeSays("True", "KubeletReady");
    await lab.steadyStands();
  });

  test("reports a rejected key, tries one login every half minute, and is Ready once the key is accepted", async () => {
    const { cluster } = lab;
    const key = join(cluster.layout.ssh, "new");
    await makeKey(key);
    assert.equal(await lab.agent().stop(), true);
    const before = sshdConnections(cluster.layout);
    const began = performance.now();
    await lab.start({ untilReady: false, providerConfig: { privateKeyFile: key } });
    const { message } = await lab.nodeSays("False", "LoginRefused");
    assert.ok(
      message.includes(`refused the login: add the public key of ${key} to ~root/.ssh/authorized_keys`),
      message,
    );
    appendFileSync(join(cluster.layout.ssh, "authorized_keys"), readFileSync(`${key}.pub`));
    await lab.nodeSays("True", "KubeletReady");
    const refused =
      lab
        .agent()
        .log()
        .match(/"reason":"LoginRefused"/g)?.length ?? 0;
    const most = Math.ceil((performance.now() - began) / 24_000);
    assert.ok(refused >= 1 && refused <= most, `${refused} refusals`);
    // Up to three connections serve a link.
    assert.ok(sshdConnections(cluster.layout) - before <= most + 3);
    await lab.steadyStands();
  });

  test("does not connect to a target with a different host key, and does not retry for minutes", async () => {
    const { cluster } = lab;
    const other = join(cluster.layout.ssh, "other-host");
    await makeKey(other);
    await cluster.killSshd();
    await lab.nodeSays("False", "LinkDown", 30_000);
    await cluster.startSshd([`HostKey ${other}`]);
    const { message } = await lab.nodeSays("False", "HostKeyMismatch");
    assert.match(
      message,
      /^\[10\.10\.9\.1\]:2222 presented the ssh-ed25519 key SHA256:\S+, which is not the one in hostKeyFingerprints: /,
    );
    const tried = sshdConnections(cluster.layout);
    const from = Date.now();
    await cluster.waitFor("ten seconds", () => Date.now() >= from + 10_000);
    assert.equal(sshdConnections(cluster.layout), tried);
    await cluster.killSshd();
    await cluster.startSshd();
    await lab.restart();
    await lab.steadyStands();
    assert.equal(condition(await lab.pods.ready("late"), "Ready")?.status, "True");
  });
});
