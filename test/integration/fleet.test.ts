import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { GraftedNode } from "../../src/fleet/grafted-node.ts";
import type { Node, Pod, Secret } from "../../src/objects.ts";
import { converse } from "../harness/conversation.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, loginSecret, podSecurity, release, startHelmLab } from "../harness/helm-lab.ts";
import { doctorKnows } from "./helm/doctor.ts";
import { graftedMachine, podOn } from "./helm/grafted-machine.ts";
import { checkMetrics, metricsPort } from "./helm/objects-metrics.ts";
import { followReadmeWithObject } from "./helm/readme.ts";
import { inNamespace, releaseOf } from "./helm/release.ts";
import { rollOut } from "./helm/roll-out.ts";

const { namespace } = release;

describe("machines as objects: GraftedNodes of a release's namespace", { timeout: 900_000 }, () => {
  let lab: HelmLab;
  let log: () => Promise<string>;
  const machine = (name: string, more: Partial<GraftedNode["spec"]> = {}) => graftedMachine(lab.edge, name, more);
  const object = async (name: string): Promise<GraftedNode | undefined> => {
    const text = await lab.cluster.mustKubectl(["get", "gn", name, inNamespace, "--ignore-not-found", "--output=json"]);
    return text === "" ? undefined : (JSON.parse(text) as GraftedNode);
  };
  const condition = async (name: string, type: string) =>
    (await object(name))?.status?.conditions?.find((each) => each.type === type);
  const explain = async () =>
    `${await lab.cluster.mustKubectl(["get", "gn", inNamespace, "--output=yaml"])}\n${(await log()).slice(-6000)}`;
  const untilReady = async (name: string) => {
    const waited = ["wait", "--for=condition=Ready", `gn/${name}`, inNamespace, "--timeout=90s"];
    const { code, stderr } = await lab.cluster.kubectl(waited, { timeoutMs: 100_000 });
    assert.equal(code, 0, `${stderr}\n${code === 0 ? "" : await explain()}`);
  };
  const untilSays = (name: string, type: string, reason: string) =>
    lab.cluster.waitFor(
      `${name} to say ${reason}`,
      async () => {
        const found = await condition(name, type);
        return found?.reason === reason && found;
      },
      { timeoutMs: 60_000, explain },
    );

  const helmTest = () => lab.helm(["test", release.name, inNamespace, "--logs", "--timeout=120s"]);

  before(async () => {
    lab = await startHelmLab("fleet", { bare: true, say: (line) => console.error(line) });
    ({ log } = releaseOf(lab));
  });
  after(async () => lab?.[Symbol.asyncDispose]());

  test("the README's commands for an object, with this checkout's chart, give a node whose pods are reachable", async () => {
    const { network, kubeletConfiguration, ssh } = machine("edge-1").spec;
    const particulars = { network, kubeletConfiguration, ssh: { port: ssh.port } };
    await followReadmeWithObject({ lab, chart, explain }, particulars, { monitoring: { metricsPort } });
    await lab.cluster.mustKubectl(["delete", "pod", "hello", "--grace-period=1", "--timeout=60s"]);
    // From here on it takes no pods with privileges.
    await lab.cluster.mustKubectl(["label", "namespace", namespace, `${podSecurity}=restricted`]);
  });

  test("a GraftedNode becomes a Node that runs pods, with kubectl logs and exec", async () => {
    await lab.cluster.apply(machine("edge-1"));
    await untilReady("edge-1");
    await lab.cluster.apply(podOn("edge-1"));
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/on-edge-1", "--timeout=55s"]);
    assert.equal(await lab.cluster.mustKubectl(["logs", "on-edge-1"]), "started\n");
    assert.equal(await lab.cluster.mustKubectl(["exec", "on-edge-1", "--", "echo", "hello"]), "hello\n");
    const { status, metadata } = (await object("edge-1")) ?? {};
    assert.deepEqual(
      status?.conditions?.map(({ type, status: is }) => `${type}=${is}`),
      ["Accepted", "Identified", "Linked", "Claimed", "Registered", "Ready"].map((type) => `${type}=True`),
    );
    assert.equal(status?.observedGeneration, metadata?.generation);
    const node = await lab.cluster.get<Node>("node", "edge-1");
    const address = node?.status?.addresses?.find(({ type }) => type === "InternalIP")?.address;
    assert.deepEqual(status?.endpoint, { address, port: 10_250 });
    assert.match(status?.machine?.runtime ?? "", /^containerd:/);
    const printed = await lab.cluster.mustKubectl(["get", "gn", inNamespace, "--no-headers"]);
    assert.match(printed, /^edge-1 +True +NodeReady +\S+ +containerd:/);
  });

  test("adding, changing, pausing and deleting a second object does not affect the first node", async () => {
    const { cluster } = lab;
    await using session = converse(
      cluster.startKubectl([
        "exec",
        "--stdin",
        "on-edge-1",
        "--",
        "sh",
        "-c",
        "while read word; do echo got $word; done",
      ]),
    );
    const undisturbed = async (word: string) => {
      session.write(`${word}\n`);
      await session.says(`got ${word}`, 20_000);
    };
    await undisturbed("first");
    const starts = async (name: string) =>
      (await log()).split("\n").filter((line) => line.includes(`"node":"${name}"`) && line.includes("is registered"))
        .length;
    assert.equal(await starts("edge-1"), 1);

    await cluster.apply(machine("edge-2", { labels: { site: "north" } }));
    await untilReady("edge-2");
    await cluster.apply(podOn("edge-2"));
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/on-edge-2", "--timeout=55s"]);
    await undisturbed("second");
    const containerOf = async () =>
      (await cluster.get<Pod>("pod", "on-edge-2"))?.status?.containerStatuses?.[0]?.containerID;
    const running = await containerOf();

    const taints = [{ key: "dedicated", value: "press", effect: "NoSchedule" }];
    const moved = { labels: { site: "south" }, taints };
    await cluster.apply(machine("edge-2", moved));
    const isMoved = async () => {
      const { metadata, spec } = (await cluster.get<Node>("node", "edge-2")) ?? {};
      return metadata?.labels?.["site"] === "south" && spec?.taints?.some(({ key }) => key === "dedicated");
    };
    await cluster.waitFor("the Node to have its new label and taint", isMoved, { timeoutMs: 60_000, explain });
    assert.equal(await starts("edge-2"), 1);
    await undisturbed("relabelled");

    const reserved = { ...moved, reserved: { cpu: "100m" } };
    await cluster.apply(machine("edge-2", reserved));
    await cluster.waitFor("the node to start again", async () => (await starts("edge-2")) === 2, { explain });
    await untilReady("edge-2");
    await undisturbed("changed");

    await cluster.apply(machine("edge-2", { ...reserved, paused: true }));
    await untilSays("edge-2", "Ready", "Paused");
    await cluster.apply(machine("edge-2", { ...reserved, paused: false }));
    await untilReady("edge-2");
    assert.equal(await containerOf(), running);
    await undisturbed("paused");

    await cluster.mustKubectl(["delete", "gn", "edge-2", inNamespace, "--timeout=120s"], { timeoutMs: 130_000 });
    assert.equal(await cluster.get<Node>("node", "edge-2"), undefined);
    assert.equal(await cluster.get<Pod>("pod", "on-edge-2"), undefined);
    const left = await lab.edge.mustInside(["sh", "-c", "ls -d /var/lib/kubelet/edge-2 2>/dev/null || true"]);
    assert.equal(left, "");
    await undisturbed("gone");
    assert.equal(await starts("edge-1"), 1);
    session.endInput();
    assert.equal(await session.ended(), 0);
  });

  test("helm test runs a pod on each machine that is Ready", async () => {
    const { code, stdout, stderr } = await helmTest();
    assert.equal(code, 0, `${stdout}${stderr}`);
    assert.match(stdout, /node edge-1: a pod ran there, and its log came back/);
  });

  test("an object that cannot be served reports why, and is served once the cause is fixed", async () => {
    const { cluster } = lab;
    const missing = { secretRef: { name: "later" } };
    const later = machine("edge-3");
    await cluster.apply({ ...later, spec: { ...later.spec, ssh: { ...later.spec.ssh, ...missing } } });
    const found = await untilSays("edge-3", "Accepted", "LoginSecretMissing");
    assert.match(found.message, /spec\.ssh\.secretRef names Secret "later", which does not exist/);
    assert.equal((await condition("edge-3", "Ready"))?.reason, "LoginSecretMissing");
    const secret = loginSecret(lab.edge) as { metadata: object };
    await cluster.apply({ ...secret, metadata: { ...secret.metadata, name: "later" } });
    await untilReady("edge-3");

    const wrong = { ...later.spec.kubeletConfiguration, maxPods: "many" };
    await cluster.apply({
      ...later,
      spec: { ...later.spec, ssh: { ...later.spec.ssh, ...missing }, kubeletConfiguration: wrong },
    });
    const refused = await untilSays("edge-3", "Accepted", "InvalidConfiguration");
    assert.match(
      refused.message,
      /GraftedNode edge-3: spec\.kubeletConfiguration\.maxPods .*; the node keeps running unchanged$/,
    );
    const ready = (await cluster.get<Node>("node", "edge-3"))?.status?.conditions?.find(({ type }) => type === "Ready");
    assert.equal(ready?.status, "True");
    await doctorKnows(cluster, { served: "edge-1", refused: "edge-3" });

    await cluster.apply(machine("other"));
    assert.match((await untilSays("other", "Accepted", "NameNotAllowed")).message, /fleet\.nodeNames .* edge-\*/);
    await cluster.mustKubectl(["delete", "gn", "other", inNamespace, "--timeout=20s"]);

    await cluster.apply({
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "edge-4" },
      spec: { providerID: "elsewhere://4" },
    });
    await cluster.apply(machine("edge-4"));
    await untilSays("edge-4", "Accepted", "NameTaken");
    await cluster.mustKubectl(["delete", "gn", "edge-4", inNamespace, "--timeout=20s"]);
    assert.notEqual(await cluster.get<Node>("node", "edge-4"), undefined);
  });

  test("helm test fails while an object that should be Ready is not, and names it", async () => {
    const { code, stdout, stderr } = await helmTest();
    assert.notEqual(code, 0);
    assert.match(`${stdout}${stderr}`, /GraftedNode edge-3: not Ready: InvalidConfiguration: /);
    assert.match(`${stdout}${stderr}`, /node edge-1: a pod ran there, and its log came back/);
  });

  test("a pool sets defaults for its members, and kubectl scale sets how many of them are nodes", async () => {
    const { cluster } = lab;
    const { ssh, kubeletConfiguration } = machine("edge-5").spec;
    const template = {
      ssh: { port: ssh.port, secretRef: ssh.secretRef },
      network: "isolated",
      labels: { tier: "edge" },
    };
    await cluster.apply({
      apiVersion: "graftlet.dev/v1alpha1",
      kind: "GraftedNodePool",
      metadata: { name: "edge", namespace },
      spec: { replicas: 1, template },
    });
    const member = (name: string) => {
      const { cgroupRoot, podLogsDir } = machine(name).spec.kubeletConfiguration;
      const own = { ...kubeletConfiguration, cgroupRoot, podLogsDir };
      const spec = { poolRef: { name: "edge" }, ssh: { host: ssh.host }, kubeletConfiguration: own };
      return { ...machine(name), spec };
    };
    await cluster.apply([member("edge-5"), member("edge-6")]);
    await untilReady("edge-5");
    await untilSays("edge-6", "Ready", "Inactive");
    assert.equal((await cluster.get<Node>("node", "edge-5"))?.metadata.labels?.["tier"], "edge");
    const counts = () => cluster.mustKubectl(["get", "gnp", "edge", inNamespace, "--no-headers"]);
    await cluster.waitFor("the pool to count its members", async () => /^edge +2 +1 +1 /.test(await counts()), {
      explain,
    });
    await checkMetrics(cluster, [
      'graftlet_grafted_node_ready{node="edge-5",pool="edge"} 1',
      'graftlet_grafted_node_not_ready_reason{node="edge-6",pool="edge",reason="Inactive"} 1',
      'graftlet_grafted_node_pool_spec_replicas{pool="edge"} 1',
      'graftlet_grafted_node_pool_status_replicas_ready{pool="edge"} 1',
      "graftlet_replicas 1",
      "graftlet_unowned_grafted_nodes 0",
    ]);

    await cluster.mustKubectl(["scale", "gnp/edge", inNamespace, "--replicas=2"]);
    await untilReady("edge-6");
    await cluster.apply(podOn("edge-6"));
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/on-edge-6", "--timeout=55s"]);
    await rollOut(cluster, explain);
    await cluster.mustKubectl(["scale", "gnp/edge", inNamespace, "--replicas=1"]);
    // The member with a pod stays.
    await untilSays("edge-5", "Ready", "Inactive");
    assert.equal(await cluster.get<Node>("node", "edge-5"), undefined);
    await untilReady("edge-6");
    const gone = ["delete", "gn", "edge-5", "edge-6", inNamespace, "--timeout=120s"];
    await cluster.mustKubectl(gone, { timeoutMs: 130_000 });
    assert.equal(await cluster.get<Node>("node", "edge-6"), undefined);
  });

  test("kubectl apply and an upgrade turn a node in the values into an object, without disturbing its pods", async () => {
    const { cluster, mustHelm } = lab;
    const measured = `--set=monitoring.metricsPort=${metricsPort}`;
    const values = ["--set=fleet.enabled=true", "--set=fleet.nodeNames={edge-*}", measured];
    const upgrade = (...more: readonly string[]) =>
      mustHelm(["upgrade", release.name, chart, inNamespace, "--wait", "--timeout=120s", ...values, ...more]);
    const { ssh, kubeletConfiguration } = machine("edge-7").spec;
    const login = { host: ssh.host, port: ssh.port, existingSecret: release.secret, network: "isolated" };
    await upgrade(`--set-json=nodes=${JSON.stringify({ "edge-7": { ssh: login, kubeletConfiguration } })}`);
    await untilReady("edge-7");
    assert.equal((await condition("edge-7", "Accepted"))?.reason, "Static");
    await cluster.apply(podOn("edge-7"));
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/on-edge-7", "--timeout=55s"]);
    const state = async () => {
      const container = (await cluster.get<Pod>("pod", "on-edge-7"))?.status?.containerStatuses?.[0];
      return [(await cluster.get<Node>("node", "edge-7"))?.metadata.uid, container?.containerID];
    };
    const before = await state();

    await cluster.apply(machine("edge-7"));
    assert.equal((await condition("edge-7", "Accepted"))?.reason, "Static");
    await upgrade("--set-json=nodes={}");
    await untilSays("edge-7", "Accepted", "Valid");
    await untilReady("edge-7");
    assert.deepEqual(await state(), before);
    assert.deepEqual((await object("edge-7"))?.metadata.ownerReferences, undefined);
    await cluster.mustKubectl(["delete", "gn", "edge-7", inNamespace, "--timeout=120s"], { timeoutMs: 130_000 });
    assert.equal(await cluster.get<Node>("node", "edge-7"), undefined);
  });

  test("deleting an object whose machine is off completes with the force annotation", async () => {
    const { cluster, edge } = lab;
    await edge.unplug();
    try {
      // Deleted first, a login stays as long as an object names it.
      await cluster.mustKubectl(["delete", "secret", "later", inNamespace, "--wait=false"]);
      assert.notEqual(await cluster.get<Secret>("secret", "later", namespace), undefined);
      await cluster.mustKubectl(["delete", "gn", "edge-3", inNamespace, "--wait=false"]);
      await untilSays("edge-3", "Ready", "Leaving");
      await cluster.mustKubectl(["annotate", "gn", "edge-3", inNamespace, "graftlet.dev/force-leave=it burnt down"]);
      await cluster.waitFor("the object to be gone", async () => (await object("edge-3")) === undefined, {
        timeoutMs: 90_000,
        explain,
      });
      assert.equal(await cluster.get<Node>("node", "edge-3"), undefined);
      const about = "--field-selector=involvedObject.name=edge-3,reason=LeftDirty";
      const told = await cluster.mustKubectl(["get", "events", inNamespace, about, "--output=jsonpath={..message}"]);
      assert.match(told, /was not cleaned \(forced: it burnt down\); machine ID [0-9a-f]{32}/);
      const secretIsGone = async () => (await cluster.get<Secret>("secret", "later", namespace)) === undefined;
      await cluster.waitFor("the Secret to be gone", secretIsGone, { explain });
    } finally {
      await edge.plug();
    }
    await untilReady("edge-1");
  });

  test("a different machine at the same address is not used until it is accepted", async () => {
    const { cluster, edge } = lab;
    const pause = (paused: boolean) =>
      cluster.mustKubectl([
        "patch",
        "gn",
        "edge-1",
        inNamespace,
        "--type=merge",
        `--patch={"spec":{"paused":${paused}}}`,
      ]);
    const accept = (id: string) =>
      cluster.mustKubectl([
        "annotate",
        "gn",
        "edge-1",
        inNamespace,
        "--overwrite",
        `graftlet.dev/accept-machine=${id}`,
      ]);
    const machineID = async () => (await object("edge-1"))?.status?.machine?.machineID;
    const before = (await machineID()) ?? "";
    const other = "4e0d1f4b0c2a4c8fb8f5a9a3f1d2e6b7";
    const file = join(edge.layout.dir, "other-machine-id");
    await pause(true);
    await untilSays("edge-1", "Ready", "Paused");
    const replace = 'echo "$1" > "$2"; mount -n --bind "$2" /etc/machine-id';
    await edge.mustInside(["sh", "-ec", replace, "sh", other, file]);
    try {
      await pause(false);
      const { message } = await untilSays("edge-1", "Claimed", "OtherMachine");
      assert.ok(message.includes(`its machine ID is ${other}, but the node is bound to ${before}`), message);
      assert.equal(await machineID(), before);
      await accept(other);
      await untilReady("edge-1");
      await cluster.waitFor("the status to name the machine", async () => (await machineID()) === other, { explain });
    } finally {
      await edge.mustInside(["umount", "-n", "/etc/machine-id"]);
    }
    await accept(before);
    await cluster.waitFor("the machine of before to serve it", async () => (await machineID()) === before, { explain });
    await untilReady("edge-1");
  });

  test("helm uninstall with onUninstall: drain takes the machines out of the cluster first", async () => {
    const { cluster } = lab;
    assert.notEqual(await object("edge-1"), undefined);
    await lab.mustHelm([
      "upgrade",
      release.name,
      chart,
      inNamespace,
      "--reuse-values",
      "--set=onUninstall=drain",
      "--wait",
    ]);
    await untilReady("edge-1");
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=240s"]);
    assert.equal(await object("edge-1"), undefined);
    assert.equal(await cluster.get<Node>("node", "edge-1"), undefined);
    assert.deepEqual(lab.edge.podProcesses(), []);
  });
});
