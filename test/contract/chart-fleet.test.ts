import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1ClusterRole, V1ConfigMap, V1Deployment, V1PolicyRule, V1RoleBinding } from "@kubernetes/client-node";
import { parse } from "yaml";
import { parseCommandLine } from "../../src/config/command-line.ts";
import { processIo } from "../../src/config/process-io.ts";
import { caseFiles, objectsIn, ofKind, podOf, type Rendered, templateArguments } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { must, run } from "../harness/processes.ts";

describe("the chart for GraftedNodes", { timeout: 600_000 }, () => {
  let helm: string;
  const path = caseFiles().find(({ name }) => name === "ci/fleet-values.yaml")?.path ?? "";
  const rendered = async (...set: readonly string[]): Promise<readonly Rendered[]> => {
    const more = set.flatMap((one) => ["--set-json", one]);
    return objectsIn(await must([helm, ...templateArguments("--values", path, ...more)]));
  };
  const rulesOf = (objects: readonly Rendered[]) =>
    ["ClusterRole", "Role"].flatMap((kind) => ofKind<V1ClusterRole>(objects, kind)).flatMap(({ rules = [] }) => rules);
  const policiesIn = (objects: readonly Rendered[]) =>
    objects
      .filter(({ kind }) => kind === "ValidatingAdmissionPolicy")
      .map(({ metadata }) => metadata.name.replace("edge-graftlet.graftlet.", ""))
      .toSorted();
  before(async () => {
    helm = await findHelm();
  });

  test("runs one Pod even without nodes in the values, and never on a graftlet node", async () => {
    const objects = await rendered();
    const [deployment] = ofKind<V1Deployment>(objects, "Deployment");
    assert.equal(deployment?.spec?.replicas, 1);
    const [pod] = objects.flatMap((object) => (object.kind === "Deployment" ? (podOf(object)?.spec ?? []) : []));
    const elsewhere = { matchExpressions: [{ key: "graftlet.dev/target", operator: "DoesNotExist" }] };
    const required = pod?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
    assert.deepEqual(required?.nodeSelectorTerms, [elsewhere]);
    assert.deepEqual(
      pod?.containers[0]?.ports?.map(({ name }) => name),
      ["health"],
    );
  });

  test("passes the fleet to graftlet's configuration, with approvals and endpoints as for nodes in the values", async () => {
    const [map] = ofKind<V1ConfigMap>(await rendered('publishServices={"enabled":true}'), "ConfigMap");
    const { fleet, nodes, approveServingCertificates, endpointsOwner } = parse(
      map?.data?.["nodes.yaml"] ?? "",
    ) as Readonly<Record<string, unknown>>;
    assert.deepEqual(fleet, { release: "edge", nodeNames: ["edge-*"] });
    assert.deepEqual(nodes, []);
    assert.equal(approveServingCertificates, true);
    assert.equal(endpointsOwner, "edge-graftlet.graftlet.endpoints");
    const [without] = ofKind<V1ConfigMap>(await rendered("approveServingCertificates=false"), "ConfigMap");
    assert.doesNotMatch(without?.data?.["nodes.yaml"] ?? "", /approveServingCertificates|endpointsOwner/);
  });

  test("grants permissions for any number of machines, without their names", async () => {
    const objects = await rendered();
    const of = (resource: string) => rulesOf(objects).filter(({ resources }) => resources?.includes(resource));
    const unnamed = (rules: readonly V1PolicyRule[]) =>
      [...new Set(rules.flatMap(({ resourceNames, verbs }) => (resourceNames ? [] : verbs)))].toSorted();
    assert.deepEqual(unnamed(of("graftednodes")), ["create", "delete", "get", "list", "patch", "watch"]);
    const shownNot = rulesOf(await rendered("nodeObjects=false"));
    const fewer = shownNot.filter(({ resources }) => resources?.includes("graftednodes"));
    assert.deepEqual(unnamed(fewer), ["get", "list", "patch", "watch"]);
    assert.deepEqual(unnamed(of("graftednodes/status")), ["patch"]);
    assert.deepEqual(unnamed(of("secrets")), ["create", "get", "list", "patch", "watch"]);
    assert.deepEqual(unnamed(of("services")), ["create", "get", "patch"]);
    assert.deepEqual(unnamed(of("nodes")), ["delete", "get", "patch"]);
    assert.deepEqual(unnamed(of("nodes/proxy")), ["get"]);
    const ofNodes = rulesOf(objects).filter(({ resources = [] }) => resources.some((one) => one.startsWith("nodes")));
    assert.ok(ofNodes.every(({ resourceNames }) => resourceNames === undefined));
    const subjects = ofKind<V1RoleBinding>(objects, "RoleBinding").find(
      ({ metadata }) => metadata?.namespace === "kube-system",
    )?.subjects;
    assert.deepEqual(subjects, [{ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: "system:nodes" }]);
  });

  test("without admission policies, the account may only get and delete Nodes", async () => {
    const objects = await rendered('admissionPolicy={"create":false}');
    assert.deepEqual(policiesIn(objects), []);
    const verbs = rulesOf(objects)
      .filter(({ resources = [] }) => resources.some((one) => one.startsWith("nodes")))
      .map(({ resources, verbs }) => [resources, verbs]);
    assert.deepEqual(verbs, [[["nodes"], ["get", "delete"]]]);
  });

  test("renders policies for the machines' Services only if graftlet creates these Services", async () => {
    const always = ["approvals", "certificates", "fleet", "machines", "proxy", "replicas", "taints"];
    const ofServices = ["approvals.server", "approvals.services", "endpoints", "endpoints.addresses"];
    assert.deepEqual(policiesIn(await rendered()), [...always, ...ofServices].toSorted());
    const atPod = await rendered('kubeletAddress="podIP"');
    assert.deepEqual(policiesIn(atPod), [...always, "approvals.addresses"].toSorted());
    const resources = rulesOf(atPod).flatMap((rule) => rule.resources ?? []);
    assert.ok(!resources.includes("services"));
  });

  test("uses the same anchored expression for node names in all policies, with only * as a wildcard", async () => {
    const objects = await rendered('fleet.nodeNames=["edge-*","*.hall-2.example","press"]');
    const expressions = new Set(
      [...JSON.stringify(objects).matchAll(/matches\('(\^\([^']*)'\)/g)].map(([, one]) => one),
    );
    assert.equal(expressions.size, 1);
    const expression = new RegExp([...expressions][0] ?? "");
    for (const name of ["edge-1", "edge-1.hall", "edge-", "a.hall-2.example", "press"]) assert.match(name, expression);
    for (const name of [
      "edge",
      "an-edge-1",
      "edge-1_",
      "edge-1\n",
      "edge-É",
      "EDGE-1",
      "a.hall-2xexample",
      "press2",
      "",
    ])
      assert.doesNotMatch(name, expression);
  });

  test("policies allow the nodes of the values in addition to those of GraftedNodes", async () => {
    const node = { name: "press", ssh: { host: "192.0.2.7", existingSecret: "press-ssh" } };
    const text = JSON.stringify(await rendered(`nodes=${JSON.stringify([node])}`));
    const both = text.match(/\(([^()]|\([^()]*\))* in \[\\"press\\"\] \|\| size\(/g) ?? [];
    assert.ok(both.length >= 5, `${both.length}`);
  });

  test("onUninstall: drain has a Job that may delete GraftedNodes, and Nodes only if the values have nodes", async () => {
    const isOfJob = ({ metadata }: Rendered) => metadata.name.endsWith("leave");
    const objects = (await rendered('onUninstall="drain"')).filter(isOfJob);
    assert.deepEqual(objects.map(({ kind }) => kind).toSorted(), ["Job", "Role", "RoleBinding", "ServiceAccount"]);
    const rules = rulesOf(objects).map(({ resources, resourceNames, verbs }) => [resources, resourceNames, verbs]);
    assert.deepEqual(rules, [
      [["deployments/scale"], ["edge-graftlet"], ["get", "patch"]],
      [["graftednodes"], undefined, ["list", "delete"]],
    ]);
    const node = { name: "press", ssh: { host: "192.0.2.7", existingSecret: "press-ssh" } };
    const both = (await rendered('onUninstall="drain"', `nodes=${JSON.stringify([node])}`)).filter(isOfJob);
    const [ofNodes] = rulesOf(both);
    assert.deepEqual([ofNodes?.resources, ofNodes?.resourceNames], [["nodes"], ["press"]]);
    assert.deepEqual((await rendered()).filter(isOfJob), []);
  });

  test("gives each replica outside the cluster an account with the permissions of Pods, and a configuration", async () => {
    const replicas = 'fleet.outsideReplicas=[{"name":"site-a","addresses":["192.0.2.10"]}]';
    const [objects, without] = [await rendered(replicas), await rendered()];
    const name = "edge-graftlet.site-a";
    const bound = ["RoleBinding", "ClusterRoleBinding"]
      .flatMap((kind) => ofKind<V1RoleBinding>(objects, kind))
      .filter(({ subjects }) => subjects?.some((subject) => subject.name === name));
    assert.deepEqual(
      bound.map(({ kind, metadata }) => `${kind} ${metadata?.name}`),
      ["RoleBinding edge-graftlet", "ClusterRoleBinding edge-graftlet.graftlet"],
    );
    const map = ofKind<V1ConfigMap>(objects, "ConfigMap").find(({ metadata }) => metadata?.name === name);
    const text = map?.data?.["nodes.yaml"] ?? "";
    const io = { ...processIo(), env: {}, readFile: () => "" };
    const command = parseCommandLine(["--fleet=graftlet/edge", "--kubeconfig=/k"], io);
    assert.ok(command.kind === "join");
    const run = command.complete(`ConfigMap graftlet/${name}`, text);
    assert.deepEqual(run.fleet?.outside, { addresses: ["192.0.2.10"], firstPort: 10_350 });
    assert.deepEqual([run.health, run.metrics, run.nodeObjects, run.fleet?.listener], Array(4).fill(undefined));
    // Its Pods do not restart because of it.
    const podsOf = (all: readonly Rendered[]) => all.filter(({ kind }) => kind === "Deployment");
    assert.deepEqual(podsOf(objects), podsOf(without));
  });

  test("applies each policy of the Pods' account to replicas outside the cluster, too", async () => {
    const objects = await rendered('fleet.outsideReplicas=[{"name":"site-a","addresses":["192.0.2.10"]}]');
    const user = "system:serviceaccount:graftlet:edge-graftlet";
    const conditionsOf = ({ metadata, spec }: Rendered & { readonly spec?: unknown }) => {
      const { matchConditions = [] } = (spec ?? {}) as { readonly matchConditions?: readonly { expression: string }[] };
      return { name: metadata.name, text: matchConditions.map(({ expression }) => expression).join(" && ") };
    };
    const policies = objects.filter(({ kind }) => kind === "ValidatingAdmissionPolicy").map(conditionsOf);
    const ofPods = policies.filter(({ text }) => new RegExp(`${user}['"]`).test(text));
    const withoutSite = ofPods.filter(({ text }) => !text.includes(`${user}.site-a`)).map(({ name }) => name);
    // The addresses of a Pod are those in its status.
    assert.deepEqual(withoutSite, ["edge-graftlet.graftlet.endpoints.addresses"]);
    assert.ok(policies.some(({ name }) => name === "edge-graftlet.graftlet.endpoints.outside"));
    assert.ok(ofPods.length >= 8, String(ofPods.length));
  });

  test("refuses replicas outside the cluster that nothing can be shared with, and says why", async () => {
    const refused = async (...set: readonly string[]) => {
      const more = set.flatMap((one) => ["--set-json", one]);
      return (await run([helm, ...templateArguments("--values", path, ...more)])).stderr;
    };
    const site = 'fleet.outsideReplicas=[{"name":"site-a","addresses":["192.0.2.10"]}]';
    assert.match(
      await refused(site, 'kubeletAddress="podIP"'),
      /fleet\.outsideReplicas\[0\]: only machines of GraftedNodes are shared/,
    );
    const twice =
      'fleet.outsideReplicas=[{"name":"a","addresses":["192.0.2.1"]},{"name":"a","addresses":["192.0.2.2"]}]';
    assert.match(await refused(twice), /fleet\.outsideReplicas\[1\]\.name: another replica is called a/);
    const named = 'fleet.outsideReplicas=[{"name":"a","addresses":["site.example"]}]';
    assert.match(await refused(named), /fleet\.outsideReplicas\[0\]\.addresses: "site\.example" is not an IP address/);
  });
});
