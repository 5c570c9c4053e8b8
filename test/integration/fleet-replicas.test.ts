import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ProcessReport } from "../../src/process/status-socket.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import type { Node } from "../../src/objects.ts";
import { converse } from "../harness/conversation.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { addresses } from "../harness/namespaces.ts";
import { must, run } from "../harness/processes.ts";
import { whole } from "../matrix.ts";
import { installRival, powerCycle, recordConnections, recordedOwner, rootOf, startBystander } from "./helm/bad-luck.ts";
import { graftedMachine, podOn } from "./helm/grafted-machine.ts";
import { inNamespace } from "./helm/release.ts";
import { isRunning, type Owned, processesOf, type Replicas, replicasOf, watchReady } from "./helm/replicas.ts";
import { addressOf, server, service } from "./helm/tunnel.ts";

const machines = ["edge-1", "edge-2", "edge-3", "edge-4"];
/** True once each replica serves machines: none is about to be handed over. */
const isEven = (owned: readonly Owned[]): boolean => new Set(owned.map(({ replica }) => replica)).size === replicas;
/** The machine whose pods reach the cluster, and are reached, over the link. */
const tunneled = "edge-4";
const replicas = 3;

describe("machines shared by the replicas of a release", { timeout: 1_200_000 }, () => {
  let lab: HelmLab;
  let shared: Replicas;
  const explain = () => shared.explain();
  /** Owners of all machines by their names, as `graftlet status` says in one of the Pods; empty while it does not answer. */
  const ownersIn = async (pod: string): Promise<ReadonlyMap<string, string>> => {
    const asked = ["exec", pod, inNamespace, "--", "graftlet", "status", "-o", "json"];
    const { stdout } = await lab.cluster.kubectl(asked);
    if (stdout === "") return new Map();
    const { nodes, fleet } = JSON.parse(stdout) as ProcessReport;
    assert.equal(fleet?.replica, pod);
    const own = nodes.map(({ name }) => [name, pod] as const);
    return new Map([...own, ...fleet.machines.map(({ name, owner = "nobody" }) => [name, owner] as const)]);
  };
  /** Waits until `graftlet status` in each Pod shows each machine once, with the owner that its object names. */
  const untilSeen = () =>
    lab.cluster.waitFor(
      "each Pod to show the machines of all others",
      async () => {
        const owners = new Map((await shared.list()).map(({ name, replica }) => [name, replica]));
        for (const { metadata } of (await shared.pods()).filter(isRunning)) {
          const seen = await ownersIn(metadata.name);
          if (seen.size !== owners.size || [...owners].some(([name, owner]) => seen.get(name) !== owner)) return false;
        }
        return true;
      },
      { timeoutMs: 60_000, explain },
    );
  /** Waits until a pod of the cluster reaches the pod of the tunneled machine through a Service, and that pod a Service of the cluster. */
  const untilReached = async () => {
    const ip = await addressOf(lab.cluster, "shop");
    const connects = async (from: string, to: string) =>
      (await lab.cluster.kubectl(["exec", from, "--", "/agnhost", "connect", to, "--timeout=2s"])).code === 0;
    const isReached = async () =>
      (await connects("client", `${ip}:80`)) && (await connects("web", `${addresses.apiServerService}:443`));
    await lab.cluster.waitFor("pods to reach each other over the link", isReached, { timeoutMs: 30_000, explain });
  };
  before(async () => {
    lab = await startHelmLab("fleet-replicas", { say: (line) => console.error(line) });
    shared = replicasOf(lab, machines);
    const values = [
      "--set=fleet.enabled=true",
      "--set=fleet.nodeNames={edge-*}",
      `--set=replicas=${replicas}`,
      "--set=pagePort=4194",
    ];
    await lab.mustHelm(["install", release.name, chart, inNamespace, "--wait", "--timeout=120s", ...values]);
  });
  after(async () => lab?.[Symbol.asyncDispose]());

  test("replicas share the machines evenly, and kubectl reaches pods through each owner", async () => {
    for (const name of machines) {
      const network = name === tunneled ? { network: "tunneled" } : {};
      await lab.cluster.apply([graftedMachine(lab.edge, name, network), podOn(name)]);
    }
    const owned = await shared.untilShared(() => true, 120_000);
    const counts = new Map<string, number>();
    for (const { replica } of owned) counts.set(replica, (counts.get(replica) ?? 0) + 1);
    assert.deepEqual(
      [...counts.values()].toSorted((one, other) => one - other),
      [1, 1, 2],
      JSON.stringify(owned),
    );
    for (const name of machines) {
      await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/on-${name}`, "--timeout=55s"]);
      assert.equal(await lab.cluster.mustKubectl(["exec", `on-${name}`, "--", "echo", "hello"]), "hello\n");
      assert.equal(await lab.cluster.mustKubectl(["logs", `on-${name}`]), "started\n");
    }
    const selector = `--field-selector=status.owner.replica=${owned[0]?.replica}`;
    assert.match(await lab.cluster.mustKubectl(["get", "gn", inNamespace, selector, "--output=name"]), /graftednode/);
  });

  test("graftlet status in each Pod shows the machines of the others, and who serves them", async () => {
    await untilSeen();
    const [first] = await shared.list();
    assert.ok(first);
    const { name: own, replica } = first;
    const text = (await lab.cluster.kubectl(["exec", replica, inNamespace, "--", "graftlet", "status"])).stdout;
    assert.match(text, new RegExp(`^${own}: ready .*\\n(?:.*\\n)*replicas of the release:\\n`, "m"));
    assert.match(text, new RegExp(`^  ${replica} \\(this one\\): [12] machines?$`, "m"));
    assert.equal([...text.matchAll(/^  edge-\d: ready \(served by /gm)].length + text.split(/^edge-/m).length - 1, 4);
  });

  test("the page of each Pod lists the machines of the others", async () => {
    const owned = await shared.list();
    for (const pod of (await shared.pods()).filter(isRunning)) {
      const [pid] = processesOf(pod);
      const curl = [lab.cluster.tools.path("curl"), "--silent", "--max-time", "3", "http://127.0.0.1:4194/feed"];
      // The feed does not end: curl does, with an error.
      const { stdout } = await run(["nsenter", `--target=${pid}`, "--net", ...curl]);
      for (const { name, replica } of owned) {
        const isOther = stdout.includes(
          `{"kind":"machine","machine":{"name":"${name}","owner":"${replica}","ready":true,`,
        );
        assert.equal(isOther, replica !== pod.metadata.name, `${name} in ${pod.metadata.name}: ${stdout}`);
      }
    }
  });

  test("pods of a tunneled machine are reached through its owner, whichever that is", async () => {
    const { cluster } = lab;
    const { spec } = podOn(tunneled);
    const onMachine = { nodeSelector: spec.nodeSelector, tolerations: spec.tolerations };
    await cluster.apply([server("web", onMachine), server("client"), service("shop")]);
    const ready = ["wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=90s"];
    await cluster.mustKubectl(ready, { timeoutMs: 100_000 });
    await untilReached();
  });

  test("scaling down hands machines over without a restart or a node that is not Ready, and sessions of other machines go on", async () => {
    const before = await shared.list();
    const running = await shared.containers();
    const kept = before[0];
    assert.ok(kept);
    const { replica: last } = kept;
    // The Deployment ends the others.
    const cost = "controller.kubernetes.io/pod-deletion-cost=100";
    await lab.cluster.mustKubectl(["annotate", "pod", last, inNamespace, cost]);
    await using session = converse(
      lab.cluster.startKubectl([
        "exec",
        "--stdin",
        `on-${kept.name}`,
        "--",
        "sh",
        "-c",
        "while read word; do echo got $word; done",
      ]),
    );
    session.write("before\n");
    await session.says("got before", 20_000);
    using watch = watchReady(lab, machines);
    await shared.scale(1);
    const after = await shared.untilShared((owned) => owned.every(({ replica }) => replica === last));
    for (const { name, epoch } of after) {
      const old = before.find((one) => one.name === name);
      assert.equal(epoch, (old?.epoch ?? 0) + (old?.replica === last ? 0 : 1), name);
    }
    session.write("after\n");
    await session.says("got after", 20_000);
    session.endInput();
    assert.equal(await session.ended(), 0);
    assert.deepEqual(await watch.notReady(), []);
    assert.deepEqual(await shared.containers(), running);
    await untilReached();
    for (const name of machines)
      assert.equal(await lab.cluster.mustKubectl(["exec", `on-${name}`, "--", "echo", "hello"]), "hello\n");
  });

  test("scaling up gives machines to the new replicas", async () => {
    const running = await shared.containers();
    await shared.scale(replicas);
    await shared.untilShared((owned) => new Set(owned.map(({ replica }) => replica)).size === replicas, 90_000);
    assert.deepEqual(await shared.containers(), running);
    await untilReached();
  });

  test("the machines of a replica that stands still are taken over, and it does nothing to them when it goes on", async () => {
    const running = await shared.containers();
    const before = await shared.list();
    const frozen = before[0]?.replica ?? "";
    const moved = before.filter(({ replica }) => replica === frozen);
    const pod = (await shared.pods()).find(({ metadata }) => metadata.name === frozen);
    assert.ok(pod);
    using watch = watchReady(lab, machines);
    const began = performance.now();
    const pids = processesOf(pod);
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    try {
      const taken = await shared.untilShared((owned) => owned.every(({ replica }) => replica !== frozen));
      for (const { name, epoch } of moved) {
        assert.equal(taken.find((one) => one.name === name)?.epoch, epoch + 1, name);
        await shared.untilAnswers(name);
      }
      const took = (performance.now() - began) / 1_000;
      console.log(`the machines of a replica that stands still were served again after ${took.toFixed(1)} s`);
      assert.ok(took < (whole ? 30 : 45), String(took));
    } finally {
      for (const pid of pids) process.kill(pid, "SIGCONT");
    }
    await sleep(5_000);
    await shared.untilShared(() => true);
    assert.deepEqual(await shared.containers(), running);
    const unready = await watch.notReady();
    assert.deepEqual(
      unready.filter((node) => node.includes("Unknown") || node.includes("RuntimeInUse")),
      [],
    );
  });

  test("the machines of a replica that the API server is cut off from are taken over, and it lets go of them", async () => {
    const running = await shared.containers();
    const before = await shared.untilShared(isEven);
    const cut = before[0]?.replica ?? "";
    const moved = before.filter(({ replica }) => replica === cut);
    const pod = (await shared.pods()).find(({ metadata }) => metadata.name === cut);
    const [pid] = pod ? processesOf(pod) : [];
    assert.ok(pid !== undefined);
    using watch = watchReady(lab, machines);
    const packets = (does: "-I" | "-D") =>
      [addresses.node, addresses.apiServerService].map((to) =>
        must(["nsenter", `--target=${pid}`, "--net", "iptables", does, "OUTPUT", "-d", to, "-j", "DROP"]),
      );
    await Promise.all(packets("-I"));
    try {
      await shared.untilShared((owned) => owned.every(({ replica }) => replica !== cut));
      for (const { name } of moved) await shared.untilAnswers(name);
      assert.deepEqual(await shared.containers(), running);
    } finally {
      await Promise.all(packets("-D"));
    }
    await shared.untilShared(isEven);
    assert.deepEqual(await shared.containers(), running);
    const unready = await watch.notReady();
    assert.deepEqual(
      unready.filter((node) => !node.includes("NodeReady")),
      [],
    );
  });

  test("a machine that its owner does not reach is taken over by a replica that does", async () => {
    const running = await shared.containers();
    const before = await shared.untilShared(isEven);
    const owner = before[0]?.replica ?? "";
    const moved = before.filter(({ replica }) => replica === owner);
    const pod = (await shared.pods()).find(({ metadata }) => metadata.name === owner);
    const [pid] = pod ? processesOf(pod) : [];
    assert.ok(pid !== undefined);
    const packets = (does: "-I" | "-D") =>
      must(`nsenter --target=${pid} --net iptables ${does} OUTPUT -d ${agentAddresses.target} -j DROP`.split(" "));
    const began = performance.now();
    await packets("-I");
    try {
      const isLeft = ({ replica }: { readonly replica: string }) => replica === owner;
      await shared.untilShared((owned) => !owned.some(isLeft), 300_000);
      for (const { name } of moved) await shared.untilAnswers(name);
      const took = (performance.now() - began) / 1_000;
      console.log(`machines that their owner did not reach were served again after ${took.toFixed(0)} s`);
      assert.ok(took > 60, String(took));
    } finally {
      await packets("-D");
    }
    await sleep(5_000);
    const after = await shared.untilShared(() => true);
    for (const { name, replica, epoch } of after) {
      assert.notEqual(replica, owner, name);
      const old = before.find((one) => one.name === name);
      assert.equal(epoch, (old?.epoch ?? 0) + Number(old?.replica === owner), name);
    }
    assert.deepEqual(await shared.containers(), running);
  });

  test("the machines of a Pod that is killed are served again within seconds", async () => {
    const running = await shared.containers();
    const before = await shared.untilShared(() => true);
    const killed = before[0]?.replica ?? "";
    using watch = watchReady(lab, machines);
    await lab.cluster.mustKubectl(["delete", "pod", killed, inNamespace, "--grace-period=0", "--force"]);
    await shared.untilShared((owned) => owned.every(({ replica }) => replica !== killed));
    for (const { name, replica } of before) if (replica === killed) await shared.untilAnswers(name);
    await untilSeen();
    assert.deepEqual(await shared.containers(), running);
    assert.deepEqual(
      (await watch.notReady()).filter((node) => node.includes("Unknown")),
      [],
    );
  });

  test("an object of another release does not get a machine whose root directory or Node is this one's, even while nobody serves it", async () => {
    const running = await shared.containers();
    const before = await shared.untilShared(() => true);
    const [served, named] = ["edge-1", "edge-2"];
    const uidOf = async (kind: string, name: string, ...where: readonly string[]) =>
      lab.cluster.mustKubectl(["get", kind, name, ...where, "--output=jsonpath={.metadata.uid}"]);
    const object = await uidOf("gn", served, inNamespace);
    const node = await uidOf("node", named);
    await using rival = await installRival(lab);
    await rival.claim("rival-1", { rootDir: rootOf(served) });
    await rival.claim(named);
    assert.match(
      await rival.untilSays("rival-1", "Claimed", "RootDirTaken"),
      new RegExp(`belongs to GraftedNode graftlet/${served}: .* graftlet\\.dev/take-over=${object}$`),
    );
    assert.match(await rival.untilSays(named, "Accepted", "NameTaken"), /graftlet:\/\/graftlet\/edge\/edge-2/);
    await rival.setEpoch("rival-1", 1_000);
    await lab.cluster.waitFor(
      "another epoch",
      async () => (await rival.object("rival-1")).status?.owner?.epoch === 1_001,
    );
    await rival.untilSays("rival-1", "Claimed", "RootDirTaken");
    const owner = before.find(({ name }) => name === served);
    await lab.cluster.mustKubectl(["delete", "pod", owner?.replica ?? "", inNamespace, "--grace-period=0", "--force"]);
    const after = await shared.untilShared((owned) => owned.every(({ replica }) => replica !== owner?.replica));
    await shared.untilAnswers(served);
    const epoch = after.find(({ name }) => name === served)?.epoch;
    assert.equal(await recordedOwner(lab, served), `${object} ${epoch}`);
    await rival.untilSays("rival-1", "Claimed", "RootDirTaken");
    await rival.give("rival-1", named);
    assert.equal(await lab.cluster.get<Node>("node", "rival-1"), undefined);
    assert.equal(await uidOf("node", named), node);
    assert.equal(await recordedOwner(lab, served), `${object} ${epoch}`);
    await shared.untilShared(() => true);
    assert.deepEqual(await shared.containers(), running);
  });

  test("a root directory that is lost is locked again by the machine's owner, in its epoch, whether it is served or not", async () => {
    const running = await shared.containers();
    const owned = await shared.untilShared(() => true);
    const [served = "", ...others] = machines;
    const lose = (names: readonly string[]) =>
      lab.edge.mustInside(["sh", "-c", 'rm -rf "$@" 2>/dev/null; true', "sh", ...names.map(rootOf)]);
    const hasRecorded = async (all: readonly Owned[], name: string) =>
      (await recordedOwner(lab, name)).endsWith(` ${all.find((one) => one.name === name)?.epoch}`);
    const untilRecorded = (all: readonly Owned[], name: string) =>
      lab.cluster.waitFor(`${name} to be locked again`, () => hasRecorded(all, name), { timeoutMs: 60_000, explain });
    const began = performance.now();
    await lose([served]);
    assert.equal(await recordedOwner(lab, served), "");
    await untilRecorded(owned, served);
    console.log(`a lost root directory was locked again after ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    await shared.untilShared(
      (now) => now.find(({ name }) => name === served)?.epoch === owned.find(({ name }) => name === served)?.epoch,
    );
    await shared.untilAnswers(served);
    await shared.scale(0);
    await lab.cluster.waitFor("the replicas to end", async () => (await shared.pods()).length === 0, {
      timeoutMs: 60_000,
      explain,
    });
    await lose(others);
    await shared.scale(replicas);
    const after = await shared.untilShared(() => true, 120_000);
    for (const name of machines) {
      await shared.untilAnswers(name);
      await untilRecorded(after, name);
      const epoch = owned.find((one) => one.name === name)?.epoch ?? 0;
      assert.ok((after.find((one) => one.name === name)?.epoch ?? 0) > epoch, name);
    }
    assert.deepEqual(await shared.containers(), running);
  });

  test("pods of a machine that reboots while its owners die run again, and no process is ended that has the number of a former one", async () => {
    const before = await shared.untilShared(() => true);
    const running = await shared.containers();
    using bystander = await startBystander(lab);
    await recordConnections(lab, machines, bystander.records);
    const began = performance.now();
    const bootId = await powerCycle(lab, machines, async () => {
      for (const replica of new Set(before.map((one) => one.replica)))
        await lab.cluster.mustKubectl(["delete", "pod", replica, inNamespace, "--grace-period=0", "--force"]);
    });
    const after = await shared.untilShared(() => true, 180_000);
    for (const name of machines) {
      await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/on-${name}`, "--timeout=55s"]);
      await shared.untilAnswers(name);
      assert.equal((await lab.cluster.get<Node>("node", name))?.status?.nodeInfo?.bootID, bootId, name);
      const about = ["get", "events", `--field-selector=involvedObject.name=${name},reason=Rebooted`];
      const told = await lab.cluster.mustKubectl([...about, "--output=jsonpath={.items[*].message}"]);
      assert.equal(told, `Node ${name} has been rebooted, boot id: ${bootId}`);
      const { epoch } = after.find((one) => one.name === name) ?? {};
      assert.ok((await recordedOwner(lab, name)).endsWith(` ${epoch}`), name);
    }
    const took = (performance.now() - began) / 1_000;
    console.log(`pods of a machine that rebooted while its owners died ran again after ${took.toFixed(0)} s`);
    assert.equal(await bystander.isAlive(), true);
    const restarts = (each: string) => Number(each.split(" ").at(-1));
    assert.deepEqual(
      (await shared.containers()).map(restarts),
      running.map((each) => restarts(each) + 1),
    );
  });
});
