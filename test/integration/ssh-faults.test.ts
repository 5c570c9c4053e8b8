import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Node } from "../../src/objects.ts";
import { endsWhileAllHangs } from "../harness/hangs.ts";
import { type LinkLab, startLinkLab } from "../harness/link-lab.ts";
import { condition, containerId, shell, statusOf } from "../harness/pods.ts";
import { isAlive, textOf } from "../harness/processes.ts";
import { switchOff, switchOn } from "../harness/reboot.ts";
import { abandonSsh, deafenToSsh, loseSshPackets, openSlowWay } from "../harness/ssh-way.ts";
import { sshdProcesses } from "../harness/sshd.ts";

let lab: LinkLab;

before(async () => {
  lab = await startLinkLab("ssh-faults");
});
after(async () => {
  await lab?.[Symbol.asyncDispose]();
});

/** A pod's whole life as a user sees it. @returns how long each of its stations took, ms. */
async function live(name: string): Promise<Readonly<Record<"ready" | "exec" | "log" | "gone", number>>> {
  const { cluster, pods } = lab;
  let last = performance.now();
  const lap = () => Math.round(-last + (last = performance.now()));
  await pods.create(name, {
    initContainers: [shell("echo prepared")],
    containers: [
      shell("echo begun; httpd -f -p 8080", {
        readinessProbe: { httpGet: { path: "/", port: 8080 }, periodSeconds: 1 },
      }),
    ],
  });
  await pods.until(name, "to run", ({ status }) => status?.phase === "Running");
  await cluster.mustKubectl(["exec", name, "--", "sh", "-c", "echo ok > /index.html"]);
  const exec = lap();
  await pods.ready(name);
  const ready = lap();
  await pods.logged(name, "begun\n");
  const log = lap();
  const gone = pods.gone(name);
  await pods.remove(name);
  await gone;
  return { ready: exec + ready, exec, log, gone: lap() };
}

describe("a degraded network", { timeout: 600_000 }, () => {
  test("pods survive 1% packet loss in each direction, and 64 MiB pass through exec completely", async () => {
    const { cluster, pods } = lab;
    await pods.create("blob", {
      containers: [shell("head -c 67108864 /dev/urandom > /blob; sha256sum /blob; sleep infinity")],
    });
    await pods.until("blob", "to run", (pod) => !!statusOf(pod)?.state?.running);
    await using loss = await loseSshPackets(cluster, 1);
    const told = await cluster.waitFor("the blob's digest", async () => /^\w{64}/.exec(await pods.log("blob"))?.[0]);
    const digest = createHash("sha256");
    let bytes = 0;
    const began = performance.now();
    const reader = cluster.startKubectl(["exec", "blob", "--", "cat", "/blob"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    for await (const chunk of reader.stdout ?? []) {
      digest.update(chunk as Buffer);
      bytes += (chunk as Buffer).length;
    }
    assert.equal(bytes, 64 * 1024 * 1024);
    assert.equal(digest.digest("hex"), told);
    console.log(
      `64 MiB in ${Math.round(performance.now() - began)} ms; a pod's life: ${JSON.stringify(await live("lossy"))}`,
    );
    const lost = await loss.mend();
    // Some thousand large packets go: that none of them is lost is out of the question, how many are is chance.
    assert.ok(lost > 0, "no packet was lost");
    await Promise.all([pods.gone("blob"), pods.remove("blob", 0)]);
    await lab.steadyStands();
  });

  for (const deaf of ["agent", "target"] as const)
    test(`the node reports a link that is dead in one direction, to ${deaf}, within 15 s, and recovers`, async () => {
      await using deafness = await deafenToSsh(lab.cluster, deaf);
      const down = await lab.nodeSays("False", "LinkDown", 30_000);
      assert.match(down.message, /^the connection to root@\S+ is lost: it no longer answers\. /);
      await deafness.mend();
      const up = await lab.nodeSays("True", "KubeletReady");
      console.log(`${deaf} deaf: NotReady after ${down.ms} ms; mended: Ready after ${up.ms} ms`);
      assert.ok(down.ms < 16_000);
      await lab.steadyStands();
    });

  for (const distance of [0, 20, 100])
    test(`a pod starts and ends normally with a round-trip time of ${distance} ms`, async () => {
      await using way = await openSlowWay(lab.cluster, distance);
      await lab.restart({ providerConfig: way.providerConfig });
      try {
        const took = await live(`far-${distance}`);
        console.log(`${distance} ms there and back: ${JSON.stringify(took)}`);
        assert.ok(took.ready < 60_000 && took.gone < 30_000);
        await lab.steadyStands();
      } finally {
        await lab.restart();
      }
    });
});

describe("failure of graftlet's machine", { timeout: 400_000 }, () => {
  test("another graftlet process takes over once sshd has noticed the lost connection, and the pods keep running", async () => {
    const { cluster } = lab;
    await cluster.killSshd();
    await lab.nodeSays("False", "LinkDown", 30_000);
    // sshd asks only connections that have logged in whether they are alive; without the limit, it gives others two minutes.
    await cluster.startSshd(["ClientAliveInterval 3", "ClientAliveCountMax 2", "LoginGraceTime 10"]);
    await lab.nodeSays("True", "KubeletReady");
    await live("before");
    await using abandoned = await abandonSsh(cluster);
    await lab.agent().kill("SIGKILL");
    // sshd is told nothing: until it asks it believes in the connections, and what runs in them holds the lock.
    const old = sshdProcesses(cluster.layout);
    const alive = () => old.filter((id) => isAlive(id)).length;
    assert.ok(alive() > 1);
    await lab.start({ untilReady: false });
    const explain = () =>
      old
        .filter((id) => isAlive(id))
        .map(({ pid }) => textOf(`/proc/${pid}/cmdline`))
        .join("\n");
    await cluster.waitFor("sshd to have noticed", () => alive() === 1, { explain });
    await live("after");
    await lab.steadyStands();
    await abandoned.mend();
    await cluster.killSshd();
    await cluster.startSshd();
    await lab.nodeSays("True", "KubeletReady");
  });
});

describe("a revoked login key", { timeout: 300_000 }, () => {
  test("the node reports a revoked key, keeps its pods running, and recovers by itself", async () => {
    const { cluster } = lab;
    const file = join(cluster.layout.ssh, "authorized_keys");
    const keys = readFileSync(file);
    writeFileSync(file, "");
    try {
      // A revoked key ends no connection that stands.
      await lab.steadyStands();
      await cluster.killSshd();
      await cluster.startSshd();
      const { message } = await lab.nodeSays("False", "LoginRefused");
      assert.match(message, /refused the login: add the public key of \S+ to ~root\/\.ssh\/authorized_keys/);
    } finally {
      writeFileSync(file, keys);
    }
    await lab.nodeSays("True", "KubeletReady");
    await lab.steadyStands();
  });
});

describe("a target that reboots", { timeout: 400_000 }, () => {
  test("reports Rebooted, starts pods once in init order, and keeps completed ones completed", async () => {
    const { cluster, pods } = lab;
    const note = (word: string) => shell(`echo ${word} >> /notes/all`, { volumeMounts });
    const volumeMounts = [
      { name: "notes", mountPath: "/notes" },
      { name: "memory", mountPath: "/memory" },
    ];
    const volumes = [
      { name: "notes", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory" } },
    ];
    const main = shell(
      "echo main >> /notes/all; echo $(ls /memory) begun >> /notes/all; touch /memory/here; sleep infinity",
      {
        volumeMounts,
      },
    );
    await pods.create("ordered", { volumes, initContainers: [note("first"), note("second")], containers: [main] });
    await pods.create("task", { restartPolicy: "Never" });
    await pods.create("done", { restartPolicy: "Never", containers: [shell("exit 0")] });
    const [before] = await Promise.all([
      pods.ready("ordered"),
      pods.ready("task"),
      pods.until("done", "to end", ({ status }) => status?.phase === "Succeeded"),
    ]);
    const steady = await pods.ready("steady");
    await switchOff(cluster);
    await lab.nodeSays("False", "LinkDown", 30_000);
    const { bootId } = await switchOn(cluster);
    const again = await pods.until("ordered", "to run again", (pod) => statusOf(pod)?.restartCount === 1, 90_000);
    assert.notEqual(containerId(again), containerId(before));
    await lab.nodeSays("True", "KubeletReady");
    const node = await cluster.get<Node>("node", cluster.nodeName);
    assert.equal(node?.status?.nodeInfo?.bootID, bootId);
    const { items } = await pods.api.get<{ items: CoreEvent[] }>("/api/v1/namespaces/default/events");
    const rebooted = items.filter(({ reason }) => reason === "Rebooted");
    assert.deepEqual(
      rebooted.map(({ message, count }) => [message, count ?? 1]),
      [[`Node ${cluster.nodeName} has been rebooted, boot id: ${bootId}`, 1]],
    );
    const life = "first\nsecond\nmain\nbegun\n";
    await pods.ready("ordered");
    assert.equal(await cluster.mustKubectl(["exec", "ordered", "--", "cat", "/notes/all"]), life + life);
    const task = await pods.until("task", "to have failed", ({ status }) => status?.phase === "Failed");
    assert.deepEqual([statusOf(task)?.restartCount, statusOf(task)?.state?.terminated?.exitCode], [0, 255]);
    assert.equal(pods.history("done").at(-1)?.status?.phase, "Succeeded");
    const restarted = await pods.until("steady", "to run again", (pod) => {
      const { restartCount, ready } = statusOf(pod) ?? {};
      return restartCount === 1 && ready === true;
    });
    assert.notEqual(containerId(restarted), containerId(steady));
    assert.equal(condition(restarted, "Ready")?.status, "True");
    assert.match(await cluster.mustKubectl(["exec", "steady", "--", "cat", "/secret/word"]), /^before$/);
    const stays = performance.now() + 10_000;
    await cluster.waitFor("ten seconds in which nothing more is started", () => performance.now() > stays);
    for (const name of ["ordered", "steady"]) assert.equal(statusOf(await pods.ready(name))?.restartCount, 1);
  });
});

describe("shutdown while the link and the target's sshd hang", { timeout: 300_000 }, () => {
  test("graftlet exits as soon as the link counts as dead while probes, hooks, pulls, streams and reviews hang", async () => {
    assert.equal(await lab.agent().stop(), true);
    await endsWhileAllHangs(lab);
  });
});
