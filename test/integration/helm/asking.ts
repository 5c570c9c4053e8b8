import assert from "node:assert/strict";
import { newKey, signingRequest } from "../../../src/certificates/signing-request.ts";
import type { CertificateSigningRequest } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import type { Kubectl } from "../../harness/kubectl.ts";
import { kubectlWithToken } from "../../harness/pod-token.ts";
import { ask } from "./requests.ts";

const account = "far-graftlet";
const node = "far-1";
const notThePod = /only with the token of a Pod of Deployment far-graftlet/;
const ended = /only with the token of a Pod that has not ended/;
const certificateOfAnother = /the address of graftlet's Pod/;
const endpointsOfAnother = /the addresses of its own Pod/;

/** Checks on a real API server, with real tokens, which addresses the account of release `far` gets a certificate for and publishes: those of
 *  the Pod that asks. Its node is reached at the Pod and tunneled, and no graftlet runs. */
export async function askingPodsCount(cluster: Cluster, namespace: string): Promise<void> {
  let made = 0;
  const make = async (name: string, nodeName: string, ips: readonly string[], labels: object = ofTheDeployment) => {
    const containers = [{ name: "c", image: "example/c" }];
    const spec = { serviceAccountName: account, nodeName, containers, tolerations: [{ operator: "Exists" }] };
    await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata: { name, namespace, labels }, spec });
    await told(name, { phase: "Running", podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) });
    return kubectlWithToken(cluster, { namespace, account, pod: name });
  };
  const told = (name: string, status: object) =>
    cluster.mustKubectl(
      ["patch", "pod", name, `--namespace=${namespace}`, "--subresource=status", "--type=merge"].concat(
        `--patch=${JSON.stringify({ status })}`,
      ),
    );
  const approve = async (as: Kubectl["kubectl"], addresses: string | readonly string[], { of = node } = {}) => {
    const name = `asked-${++made}`;
    const names = [of, addresses].flat();
    const subject = { commonName: `system:node:${of}`, organization: "system:nodes", names };
    await ask(cluster, { name, request: await signingRequest(subject, await newKey()), as: of });
    const request = await cluster.get<CertificateSigningRequest>("csr", name);
    const conditions = [{ type: "Approved", status: "True", reason: "Test", message: "" }];
    const path = `/apis/certificates.k8s.io/v1/certificatesigningrequests/${name}/approval`;
    const stdin = JSON.stringify({ ...request, status: { conditions } });
    return (await as(["replace", "--raw", path, "--filename=-"], { stdin })).stderr;
  };
  const publish = async (as: Kubectl["kubectl"], address: string, nodeName: string) => {
    const labels = { "endpointslice.kubernetes.io/managed-by": "graftlet.dev", "graftlet.dev/node": node };
    const slice = { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" };
    const endpoints = [{ addresses: [address], nodeName }];
    const stdin = JSON.stringify({ ...slice, metadata: { name: "tried", namespace, labels }, endpoints });
    return (await as(["create", "--dry-run=server", "--filename=-"], { stdin })).stderr;
  };

  for (const name of ["lost-1", "lives-1"])
    await cluster.apply({ apiVersion: "v1", kind: "Node", metadata: { name }, spec: { unschedulable: true } });
  const old = await make("far-graftlet-0-old", "lost-1", ["10.244.3.9", "fd00:10:244::9"]);
  const own = ["10.244.3.9", "fd00:10:244::9"];
  await cluster.waitFor("the policy to know the Pod", async () => (await approve(old, own)) === "");
  assert.equal(await approve(old, "fd00:10:244::9"), "");
  assert.match(await approve(old, ["10.244.3.9", "fd00:10:244::1"]), certificateOfAnother);
  assert.match(await approve(old, "10.96.0.1"), certificateOfAnother);
  for (const six of ["2001:db8:1:2:3:4:5:60", "2001:db8::"]) {
    await told("far-graftlet-0-old", { podIPs: [{ ip: "10.244.3.9" }, { ip: six }] });
    await cluster.waitFor(
      "the policy to know the address",
      async () => (await approve(old, ["10.244.3.9", six])) === "",
    );
  }

  // Its machine is lost: it stays Terminating, beside the one that takes its place.
  await cluster.mustKubectl(["delete", "pod", "far-graftlet-0-old", `--namespace=${namespace}`, "--wait=false"]);
  const next = await make("far-graftlet-0-new", "lives-1", ["10.244.4.9"]);
  await cluster.waitFor("the policy to know the new Pod", async () => (await approve(next, "10.244.4.9")) === "");
  assert.equal(await publish(next, "10.244.4.9", "lives-1"), "");
  assert.match(await approve(next, "10.244.3.9"), certificateOfAnother);
  assert.match(await publish(next, "10.244.3.9", "lost-1"), endpointsOfAnother);
  assert.match(await approve(old, "10.244.4.9"), certificateOfAnother);
  assert.match(
    await approve(next, "10.244.4.9", { of: "edge-1" }),
    /approve requests of its own nodes|the address of graftlet's Pod/,
  );

  // One that was evicted stays for ever.
  const evicted = await make("far-graftlet-0-evicted", "lives-1", ["10.244.5.9"]);
  await cluster.waitFor("the policy to know it", async () => (await publish(evicted, "10.244.5.9", "lives-1")) === "");
  await told("far-graftlet-0-evicted", { phase: "Failed", reason: "Evicted" });
  await cluster.waitFor("the policy to know its end", async () => ended.test(await approve(evicted, "10.244.5.9")));
  assert.match(await publish(evicted, "10.244.5.9", "lives-1"), ended);
  assert.equal(await approve(next, "10.244.4.9"), "");
  assert.equal(await publish(next, "10.244.4.9", "lives-1"), "");

  // Tokens of the account that are bound to no Pod of the Deployment, also while it has none, or ended ones alone.
  const strangers = new Map<string, { as: Kubectl["kubectl"]; on: string }>([
    ["bound to no Pod", { as: await kubectlWithToken(cluster, { namespace, account }), on: "lives-1" }],
    [
      "impersonated",
      {
        as: (args, options) =>
          cluster.kubectl([...args, `--as=system:serviceaccount:${namespace}:${account}`], options),
        on: "lives-1",
      },
    ],
    ["other", { as: await make("other", "lives-1", ["10.244.4.9"], {}), on: "lives-1" }],
    ["own", { as: await make("far-graftlet-0-own", node, ["10.244.4.9"]), on: node }],
    ["bare", { as: await make("far-graftlet-0-bare", node, ["10.244.4.9"], {}), on: node }],
  ]);
  // Each publishes its own address on its own Node: the policy of addresses, which may answer first, allows that to a Pod with the
  // Deployment's labels.
  const areRefused = async () => {
    for (const [which, { as, on }] of strangers) {
      assert.match(await approve(as, "10.244.4.9"), notThePod, which);
      assert.match(await publish(as, "10.244.4.9", on), notThePod, which);
    }
  };
  const remove = (...names: readonly string[]) =>
    cluster.mustKubectl(["delete", "pod", ...names, `--namespace=${namespace}`, "--grace-period=0", "--force"]);
  await areRefused();
  await cluster.mustKubectl(["scale", "deployment", account, `--namespace=${namespace}`, "--replicas=0"]);
  await remove("far-graftlet-0-old", "far-graftlet-0-new");
  await areRefused();
  assert.match(await publish(evicted, "10.244.5.9", "lives-1"), ended);
  await remove("far-graftlet-0-evicted", "far-graftlet-0-own");
  strangers.delete("own");
  await areRefused();
  // A policy without a Pod to compare with concerns nobody else: others' slices come and go, and certificates are approved.
  const all = async () => {
    const pods = [
      "get",
      "pods",
      `--namespace=${namespace}`,
      "--selector=app.kubernetes.io/instance=far",
      "--output=name",
    ];
    return cluster.mustKubectl(pods);
  };
  await cluster.waitFor("the Deployment to have no Pod", async () => (await all()) === "");
  for (let round = 0; round < 5; round += 1) {
    assert.equal(await publish(cluster.kubectl, "10.244.7.7", "lives-1"), "");
    assert.equal(await approve(cluster.kubectl, "10.244.7.7"), "");
  }
}

const ofTheDeployment = {
  "app.kubernetes.io/name": "graftlet",
  "app.kubernetes.io/instance": "far",
  "app.kubernetes.io/component": "kubelet",
};
