import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { GraftedNode } from "../../src/fleet/grafted-node.ts";
import type { EndpointSlice, Pod } from "../../src/objects.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { type ProcessId, isAlive, signalProcess } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { graftedMachine, podOn } from "./helm/grafted-machine.ts";
import { inNamespace } from "./helm/release.ts";
import { isRunning, type Owned, type Replicas, replicasOf, watchReady } from "./helm/replicas.ts";
import { type Site, startSite } from "./helm/site.ts";

const machines = ["edge-1", "edge-2"];

describe("machines shared by a Pod and a graftlet outside the cluster", { timeout: 900_000 }, () => {
  let lab: HelmLab;
  let site: Site;
  let shared: Replicas;
  let process: ProcessId;
  const explain = async () => `${await shared.explain()}\n${site.log().slice(-6_000)}`;
  /** Waits until each machine is Ready with an owner, and the owners are as expected. */
  const untilOwned = (what: string, holds: (owned: readonly Owned[]) => boolean, timeoutMs = 60_000) =>
    lab.cluster.waitFor(
      what,
      async () => {
        const owned = await shared.list();
        return owned.length >= machines.length && owned.every(({ isReady }) => isReady) && holds(owned) && owned;
      },
      { timeoutMs, explain },
    );
  const ofSite = ({ replica }: Owned) => replica === site.replica;
  const untilPodHasAll = () => untilOwned("the Pod to have all machines", (owned) => !owned.some(ofSite));
  const untilShared = () =>
    untilOwned("each replica to have a machine", (owned) => owned.filter(ofSite).length === 1, 90_000);
  /** Reads the log of each machine's pod, and runs a command there. */
  const reachAll = async () => {
    for (const name of machines) {
      await shared.untilAnswers(name);
      assert.equal(await lab.cluster.mustKubectl(["exec", `on-${name}`, "--", "echo", "hello"]), "hello\n");
      assert.equal(await lab.cluster.mustKubectl(["logs", `on-${name}`]), "started\n");
    }
  };
  const forbidden = async (args: readonly string[], message: RegExp, stdin = "") => {
    const { code, stderr } = await site.kubectl([...args, inNamespace], { stdin });
    assert.notEqual(code, 0, args.join(" "));
    assert.match(stderr, message);
  };
  /** Checks that the account may not write this owner into an object's status. */
  const ownerForbidden = async (name: string, owner: object) => {
    const object = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftedNode", metadata: { name }, status: { owner } };
    const apply = ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--validate=false"];
    const message = /may only be written by the replica that owns it/;
    await forbidden([...apply, "--filename=-"], message, JSON.stringify(object));
  };
  before(async () => {
    lab = await startHelmLab("fleet-outside", { say: (line) => console.error(line) });
    site = await startSite(lab, "site-a");
    shared = replicasOf(lab, machines);
    const install = ["install", release.name, chart, inNamespace, "--wait", "--timeout=120s"];
    await lab.mustHelm([...install, "--set=fleet.enabled=true", "--set=fleet.nodeNames={edge-*}"]);
    for (const name of machines) await lab.cluster.apply([graftedMachine(lab.edge, name), podOn(name)]);
    await shared.untilShared(() => true, 120_000);
    for (const name of machines)
      await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/on-${name}`, "--timeout=55s"]);
  });
  after(async () => {
    await site?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("a graftlet outside the cluster gets a share of the machines, and kubectl reaches their pods through it", async () => {
    const running = await shared.containers();
    const [pod] = await shared.pods();
    using watch = watchReady(lab, machines);
    const named = `fleet.outsideReplicas=[{"name":"site-a","addresses":["${site.address}"]}]`;
    await lab.mustHelm(["upgrade", release.name, chart, inNamespace, "--reuse-values", "--set-json", named]);
    await site.login();
    process = await site.start();
    const owned = await untilShared();
    await reachAll();
    assert.deepEqual(await watch.notReady(), []);
    assert.deepEqual(await shared.containers(), running);
    assert.deepEqual(
      (await shared.pods()).map(({ metadata: { uid } }) => uid),
      [pod?.metadata.uid],
      "the Pod was replaced although its configuration is the same",
    );
    const own = owned.find(ofSite)?.name;
    const slice = ["get", "endpointslice", `graftlet-${own}-ipv4`, inNamespace, "--output=json"];
    const { endpoints, ports } = JSON.parse(await lab.cluster.mustKubectl(slice)) as EndpointSlice;
    assert.deepEqual([endpoints?.[0]?.addresses, ports?.[0]?.port], [[site.address], 10_350]);
  });

  test("a machine whose pods reach the cluster over the link stays with the Pod", async () => {
    const name = "edge-3";
    await lab.cluster.apply([graftedMachine(lab.edge, name, { network: "tunneled" })]);
    const owned = await untilOwned("edge-3 to be served", (all) => all.some((one) => one.name === name), 90_000);
    assert.equal(owned.find((one) => one.name === name)?.replica.includes("site-a"), false);
  });

  test("its account may write only what it owns, and publish only its own address", async () => {
    const foreign = (await shared.list()).find((one) => !ofSite(one));
    const own = (await shared.list()).find(ofSite);
    assert.ok(foreign && own);
    const get = ["get", "gn", own.name, inNamespace, "--output=json"];
    const object = JSON.parse(await lab.cluster.mustKubectl(get)) as GraftedNode;
    const { uid = "" } = object.status?.owner ?? {};
    const taken = { replica: "x", uid: "0123", epoch: foreign.epoch + 1, since: "2026-01-01T00:00:00Z" };
    await ownerForbidden(foreign.name, taken);
    // Its own UID, but not the next epoch.
    await ownerForbidden(foreign.name, { ...taken, uid, epoch: foreign.epoch + 2 });
    // The UID of another account.
    await ownerForbidden(foreign.name, { ...taken, uid: `x${uid.slice(1)}` });
    const [pod] = (await shared.pods()).filter(isRunning) as readonly Pod[];
    const lease = ["patch", "lease", `graftlet-replica-${pod?.metadata.name}`, "--type=merge"];
    await forbidden([...lease, '--patch={"spec":{"leaseDurationSeconds":1}}'], /may only write the Lease/);
    const endpoints = JSON.stringify({ endpoints: [{ addresses: ["192.0.2.99"] }] });
    const slice = ["patch", "endpointslice", `graftlet-${own.name}-ipv4`, "--type=merge", `--patch=${endpoints}`];
    await forbidden(slice, /may only publish its own addresses/);
    await forbidden(["create", "configmap", "x"], /cannot create resource "configmaps"/);
    await forbidden(["create", "secret", "generic", "x"], /may only write Secrets and Services of its GraftedNodes/);
  });

  test("a second process with the same account does not start, and one sentence says why", async () => {
    const { code, stderr } = await site.runToEnd();
    assert.equal(code, 1);
    assert.match(stderr, /^graftlet: another graftlet runs with ServiceAccount edge-graftlet\.site-a: each .*$/m);
    assert.ok(isAlive(process));
    await untilOwned("the first process to serve on", (owned) => owned.some(ofSite));
  });

  test("the Pod is gone: the graftlet outside the cluster serves its machine, and gives it back to the next Pod", async () => {
    await lab.cluster.mustKubectl(["delete", "gn", "edge-3", inNamespace, "--timeout=55s"]);
    const running = await shared.containers();
    await untilShared();
    const [pod] = await shared.pods();
    using watch = watchReady(lab, machines);
    const began = performance.now();
    await shared.scale(0);
    await lab.cluster.mustKubectl([
      "delete",
      "pod",
      pod?.metadata.name ?? "",
      inNamespace,
      "--grace-period=0",
      "--force",
    ]);
    await untilOwned("the graftlet outside the cluster to have all machines", (owned) => owned.every(ofSite));
    await reachAll();
    console.log(`all machines were served again after ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    assert.deepEqual(await shared.containers(), running);
    await shared.scale(1);
    await untilShared();
    await reachAll();
    assert.deepEqual(await watch.notReady(), []);
    assert.deepEqual(await shared.containers(), running);
  });

  test("the graftlet outside the cluster is killed: the Pod serves its machine, and gives one back when it runs again", async () => {
    const running = await shared.containers();
    using watch = watchReady(lab, machines);
    const began = performance.now();
    signalProcess(process, "SIGKILL");
    await untilPodHasAll();
    await reachAll();
    console.log(`all machines were served again after ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    process = await site.start();
    await untilShared();
    await reachAll();
    assert.deepEqual(await watch.notReady(), []);
    assert.deepEqual(await shared.containers(), running);
  });

  test("a graftlet outside the cluster hands its machines over and ends when the release's settings change, and has a share again once it is started again", async () => {
    const running = await shared.containers();
    using watch = watchReady(lab, machines);
    const more = ["--reuse-values", "--set=fleet.nodeNames={edge-*,site-*}", "--wait", "--timeout=120s"];
    await lab.mustHelm(["upgrade", release.name, chart, inNamespace, ...more]);
    const isChanged = () => site.log().includes("the release's configuration has changed");
    await waitFor("the change to be seen", async () => isChanged(), { timeoutMs: 60_000, explain });
    await waitFor("the process to end", async () => !isAlive(process), { timeoutMs: 60_000, explain });
    await untilPodHasAll();
    await reachAll();
    process = await site.start();
    await untilShared();
    signalProcess(process, "SIGTERM");
    await waitFor("the process to end", async () => !isAlive(process), { timeoutMs: 60_000, explain });
    await untilPodHasAll();
    assert.deepEqual(await watch.notReady(), []);
    assert.deepEqual(await shared.containers(), running);
  });
});
