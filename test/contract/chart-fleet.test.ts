import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1ClusterRole, V1ConfigMap, V1Deployment, V1PolicyRule, V1RoleBinding } from "@kubernetes/client-node";
import { parse } from "yaml";
import { caseFiles, objectsIn, ofKind, podOf, type Rendered, templateArguments } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

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
});
