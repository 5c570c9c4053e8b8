import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1ConfigMap, V1Deployment } from "@kubernetes/client-node";
import { objectsIn, ofKind, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

describe("the chart with settings other than the defaults", { timeout: 600_000 }, () => {
  let helm: string;
  const files = valueFiles();
  const valuesOf = (name: string) => files.find((file) => file.name === name)?.path ?? "";
  before(async () => {
    helm = await findHelm();
  });

  test("publishes pods only where a node is or may become tunneled and the cluster supports it", async () => {
    const values = valuesOf("tunneled");
    const has = (text: string) => [/endpointsOwner/.test(text), /kind: MutatingAdmissionPolicy$/m.test(text)];
    const rendered = (...more: readonly string[]) =>
      must([helm, ...templateArguments("--values", values, ...more)]).then(has);
    const version = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
    assert.deepEqual(await rendered(), [true, true]);
    assert.deepEqual(await rendered("--set=publishServices.enabled=auto", version), [true, true]);
    assert.deepEqual(await rendered("--set=publishServices.enabled=false", version), [false, false]);
    const set = (first: string, second: string) =>
      rendered(`--set=nodes[0].ssh.network=${first}`, `--set=nodes[1].ssh.network=${second}`, version);
    assert.deepEqual(await set("isolated", "isolated"), [false, false]);
    assert.deepEqual(await set("isolated", "auto"), [true, true], "its machine may turn out to allow it");
  });

  test("names and labels objects as configured, and includes extra objects", async () => {
    const own = JSON.stringify([
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "mine", namespace: "{{ .Release.Namespace }}" } },
      'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: {{ include "graftlet.fullname" . }}-text }',
    ]);
    const asked = ["fullnameOverride=machines", "nameOverride=press", "commonLabels.team=edge"].map(
      (one) => `--set=${one}`,
    );
    const more = [...asked, `--set-json=extraObjects=${own}`];
    const text = await must([helm, ...templateArguments("--values", valuesOf("one-over-ssh"), ...more)]);
    const named = (kind: string) => ofKind<V1ConfigMap>(objectsIn(text), kind).map(({ metadata }) => metadata?.name);
    assert.deepEqual(new Set(named("ConfigMap")), new Set(["machines", "machines-text", "mine"]));
    assert.deepEqual(named("Service"), ["machines-kubelet-edge-1"]);
    const [deployment] = ofKind<V1Deployment>(objectsIn(text), "Deployment");
    assert.equal(deployment?.metadata?.name, "machines");
    const { selector, template } = deployment?.spec ?? {};
    const found = {
      "app.kubernetes.io/name": "press",
      "app.kubernetes.io/instance": "edge",
      "app.kubernetes.io/component": "kubelet",
    };
    assert.deepEqual(selector?.matchLabels, found);
    assert.deepEqual(template?.metadata?.labels, { ...found, team: "edge" });
    const mine = ofKind<V1ConfigMap>(objectsIn(text), "ConfigMap").find(({ metadata }) => metadata?.name === "mine");
    assert.equal(mine?.metadata?.namespace, "graftlet");
  });

  test("without rbac.create renders no roles except those of its hooks", async () => {
    const text = await must([helm, ...templateArguments("--values", valuesOf("tunneled"), "--set=rbac.create=false")]);
    for (const kind of ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"])
      for (const { metadata } of ofKind<V1ConfigMap>(objectsIn(text), kind))
        assert.ok(metadata?.annotations?.["helm.sh/hook"], `${kind} ${metadata?.name}`);
  });

  test("the account may watch the API servers' endpoints only if egress tunnels lead to them", async () => {
    const values = valuesOf("one-over-ssh");
    const role = async (...more: readonly string[]) => {
      const text = await must([helm, ...templateArguments("--values", values, ...more)]);
      const roles = ofKind<{ metadata: { namespace?: string } }>(objectsIn(text), "Role");
      return roles.some(({ metadata }) => metadata.namespace === "default");
    };
    assert.equal(await role(), false);
    assert.equal(await role("--kube-version=v1.36.1+k3s1"), true);
    assert.equal(await role("--kube-version=v1.36.1+rke2r1", "--set=egressTunnel=none"), false);
    assert.equal(await role("--set=egressTunnel=k3s"), true);
  });
});
