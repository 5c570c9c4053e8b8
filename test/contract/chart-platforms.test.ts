import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1ConfigMap } from "@kubernetes/client-node";
import { parse } from "yaml";
import { objectsIn, ofKind, podOf, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

describe("the chart on EKS, on OpenShift and with another certificate signer", { timeout: 300_000 }, () => {
  let helm: string;
  const rendered = (name: string, ...more: readonly string[]): Promise<string> => {
    const { path = "" } = valueFiles().find((file) => file.name === name) ?? {};
    return must([helm, ...templateArguments("--values", path, ...more)]);
  };
  before(async () => {
    helm = await findHelm();
  });

  test("on EKS, nodes use the account's identity, and all objects name EKS's signer instead of Kubernetes's", async () => {
    const signer = "beta.eks.amazonaws.com/app-serving";
    const text = await rendered("eks");
    const [map] = ofKind<V1ConfigMap>(objectsIn(text), "ConfigMap");
    const { nodes, servingCertificateSigner } = parse(map?.data?.["nodes.yaml"] ?? "") as {
      readonly nodes: readonly { identity?: string; kubeletConfiguration?: { serverTLSBootstrap?: boolean } }[];
      readonly servingCertificateSigner?: string;
    };
    assert.equal(servingCertificateSigner, signer);
    assert.deepEqual(
      nodes.map(({ identity, kubeletConfiguration }) => [identity, kubeletConfiguration?.serverTLSBootstrap]),
      [["serviceAccount", true]],
    );
    assert.ok(text.includes(`'${signer}': ["edge-1"]`), text);
    assert.ok(!text.includes("kubernetes.io/kubelet-serving"));
    // Approval is a person's: the account would approve what it asked for itself.
    assert.doesNotMatch(text, /approveServingCertificates: true|certificatesigningrequests\/approval/);
  });

  test("with servingCertificateSigner, the account may approve only for that signer", async () => {
    const text = await rendered("one-over-ssh", "--set=servingCertificateSigner=example.com/serving");
    assert.match(text, /resources: \[signers\]\s+resourceNames: \[example\.com\/serving\]/);
    assert.ok(text.includes("oldObject.spec.signerName == 'example.com/serving'"));
    assert.ok(!text.includes("kubernetes.io/kubelet-serving"));
  });

  test("on k3s and RKE2, nodes open tunnels to the API servers unless disabled", async () => {
    const tunnel = async (...set: readonly string[]) => {
      const text = await rendered("one-over-ssh", ...set.map((value) => `--set=${value}`));
      const kind = /^ *egressTunnel: "(.*)"$/m.exec(text)?.[1];
      // The account watches the API servers' addresses in the namespace default.
      return [kind, /kind: Role\nmetadata:\n {2}name: \S+\n {2}namespace: default/.test(text)];
    };
    assert.deepEqual(await tunnel("platform=k3s"), ["k3s", true]);
    assert.deepEqual(await tunnel("platform=rke2"), ["rke2", true]);
    assert.deepEqual(await tunnel("platform=k3s", "egressTunnel=none"), ["none", false]);
    for (const platform of ["aks", "gke", ""])
      assert.deepEqual(await tunnel(`platform=${platform}`), [undefined, false], platform);
  });

  test("on OpenShift, the Pod sets no user or group", async () => {
    const deployment = objectsIn(await rendered("openshift")).find(({ kind }) => kind === "Deployment");
    const { securityContext } = (deployment && podOf(deployment)?.spec) ?? {};
    assert.deepEqual(securityContext, { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
  });
});
