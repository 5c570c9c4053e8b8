import assert from "node:assert/strict";
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type * as k8s from "@kubernetes/client-node";
import { keyAlgorithm, loadX509 } from "../../src/certificates/x509.ts";
import { pemBlocks } from "../../src/lib/pem.ts";
import type { Pod, Wire } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mounts } from "../harness/manifests.ts";
import { volumeFolder } from "../harness/pod-machine.ts";
import { volumesLab, waitsForVolume } from "../harness/volumes.ts";

type PodCertificateRequest = Wire<k8s.V1beta1PodCertificateRequest>;

const group = "/apis/certificates.k8s.io/v1beta1";
const signerName = "example.com/test";
const minute = 60_000;

let lab: Lab;
before(async () => {
  lab = await startLab("volumes", volumesLab);
});
after(() => lab?.[Symbol.asyncDispose]());

/** A ClusterTrustBundle. */
function trustBundle(name: string, spec: { trustBundle: string; signerName?: string }, labels = {}): object {
  return { apiVersion: "certificates.k8s.io/v1beta1", kind: "ClusterTrustBundle", metadata: { name, labels }, spec };
}

/** The certificate of a certificate authority, in PEM. */
async function authority(name: string): Promise<string> {
  const x509 = await loadX509();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    keys: await crypto.subtle.generateKey(keyAlgorithm, true, ["sign", "verify"]),
    signingAlgorithm: keyAlgorithm,
    extensions: [new x509.BasicConstraintsExtension(true, undefined, true)],
  });
  return `${certificate.toString("pem")}\n`;
}

/** Waits for the request of a pod, and writes its status. */
async function answer(
  pod: string,
  statusOf: (request: PodCertificateRequest) => Promise<object>,
): Promise<PodCertificateRequest> {
  const { api } = lab.pods;
  const path = `${group}/namespaces/default/podcertificaterequests`;
  const request = await lab.cluster.waitFor(`a request of pod ${pod}`, async () => {
    const { items } = await api.get<{ items: PodCertificateRequest[] }>(path);
    return items.find(({ spec }) => spec.podName === pod);
  });
  const status = await statusOf(request);
  await api.patch(`${path}/${request.metadata?.name}/status`, { status }, "merge-patch");
  return request;
}

const condition = (type: string) => ({
  type,
  status: "True",
  reason: "Tested",
  message: "by a test",
  lastTransitionTime: new Date().toISOString(),
});

/** The status of a request that a small signer issues a certificate for. */
async function issued({ spec }: PodCertificateRequest): Promise<object> {
  const x509 = await loadX509();
  const request = new x509.Pkcs10CertificateRequest(Buffer.from(spec.stubPKCS10Request, "base64"));
  assert.ok(await request.verify());
  const signer = await crypto.subtle.generateKey(keyAlgorithm, true, ["sign", "verify"]);
  const notBefore = new Date(Math.floor(Date.now() / 1000) * 1000);
  const notAfter = new Date(notBefore.getTime() + 60 * minute);
  const certificate = await x509.X509CertificateGenerator.create({
    subject: `CN=${spec.podName}`,
    issuer: "CN=signer",
    publicKey: request.publicKey,
    signingKey: signer.privateKey,
    signingAlgorithm: keyAlgorithm,
    notBefore,
    notAfter,
  });
  return {
    certificateChain: `${certificate.toString("pem")}\n`,
    notBefore: notBefore.toISOString(),
    beginRefreshAt: new Date(notBefore.getTime() + 30 * minute).toISOString(),
    notAfter: notAfter.toISOString(),
    conditions: [condition("Issued")],
  };
}

const fileOf = (pod: Pod, name: string) =>
  readFileSync(join(volumeFolder(lab.cluster, pod, "projected", "v"), name), "utf8");

describe("certificates in volumes", { concurrency: 4 }, () => {
  test("pods get trust bundles by name and by signer, and running pods get their changes", async () => {
    const { cluster, pods } = lab;
    const [one, two] = [await authority("one"), await authority("two")];
    const bySigner = { trustBundle: two, signerName };
    await cluster.apply([
      trustBundle("anchors", { trustBundle: one }),
      trustBundle("example.com:test:first", bySigner, { tier: "live" }),
      trustBundle("example.com:test:second", { ...bySigner, trustBundle: `${one}${two}` }),
    ]);
    const volume = {
      name: "v",
      projected: {
        sources: [
          { clusterTrustBundle: { name: "anchors", path: "named" } },
          { clusterTrustBundle: { signerName, labelSelector: { matchLabels: { tier: "live" } }, path: "signed/some" } },
          { clusterTrustBundle: { signerName, labelSelector: {}, path: "signed/all" } },
          { clusterTrustBundle: { name: "never", optional: true, path: "never" } },
        ],
      },
    };
    await pods.create("anchored", {
      securityContext: { runAsUser: 1234 },
      volumes: [volume],
      containers: [{ volumeMounts: mounts([volume]) }],
    });
    const pod = await pods.ready("anchored");
    const countOf = (name: string) => pemBlocks(fileOf(pod, name)).length;
    assert.deepEqual(["named", "signed/some", "signed/all", "never"].map(countOf), [1, 1, 2, 0]);
    assert.ok(pemBlocks(fileOf(pod, "signed/some"))[0]?.equals(new X509Certificate(two).raw));
    const seen = await cluster.mustKubectl(["exec", "anchored", "--", "sh", "-c", "stat -L -c '%a %u' /v/named"]);
    assert.equal(seen, "600 1234\n");
    await cluster.apply([trustBundle("anchors", { trustBundle: `${one}${two}` })]);
    await cluster.waitFor("the new bundle", () => countOf("named") === 2);
    await waitsForVolume(
      pods,
      "unanchored",
      { name: "v", projected: { sources: [{ clusterTrustBundle: { name: "later", path: "ca" } }] } },
      'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "later" not found',
    );
    await cluster.apply([trustBundle("later", { trustBundle: one })]);
    await pods.ready("unanchored");
  });

  test("a pod gets the certificates that a signer issues for it, and waits until then", async () => {
    const { pods, agent } = lab;
    const common = { signerName, maxExpirationSeconds: 3600, userAnnotations: { "example.com/a": "b" } };
    const volume = {
      name: "v",
      projected: {
        sources: [
          {
            podCertificate: {
              ...common,
              keyType: "ECDSAP256",
              credentialBundlePath: "bundle",
              keyPath: "key",
              certificateChainPath: "chain",
            },
          },
        ],
      },
    };
    await waitsForVolume(pods, "certified", volume, "credential bundle is not issued yet");
    const { spec, metadata } = await answer("certified", issued);
    const pod = await pods.ready("certified");
    const [key, chain] = [fileOf(pod, "key"), fileOf(pod, "chain")];
    assert.equal(fileOf(pod, "bundle"), key + chain);
    const certificate = new X509Certificate(chain);
    assert.ok(certificate.checkPrivateKey(createPrivateKey(key)));
    assert.equal(certificate.subject, "CN=certified");
    assert.deepEqual(spec.unverifiedUserAnnotations, common.userAnnotations);
    assert.deepEqual([spec.podUID, spec.nodeName], [pod.metadata.uid, pod.spec.nodeName]);
    assert.equal(metadata?.ownerReferences?.[0]?.uid, pod.metadata.uid);
    assert.doesNotMatch(agent.log(), /PRIVATE KEY/);
    const line = `kubelet_podcertificate_states{signer_name="${signerName}",state="fresh"} 1`;
    const metrics = await lab.cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${pod.spec.nodeName}/proxy/metrics`]);
    assert.ok(metrics.includes(line), metrics.match(/.*podcertificate.*/g)?.join("\n") ?? "none");
  });

  test("a pod whose certificate is denied keeps waiting, and events say why", async () => {
    const { pods } = lab;
    const sources = [{ podCertificate: { signerName, keyType: "ED25519", credentialBundlePath: "bundle" } }];
    const volume = { name: "v", projected: { sources } };
    await pods.create("uncertified", { volumes: [volume], containers: [{ volumeMounts: mounts([volume]) }] });
    await answer("uncertified", async () => ({ conditions: [condition("Denied")] }));
    const why = 'PodCertificateRequest was permanently denied: reason="Tested" message="by a test"';
    await pods.event("uncertified", "FailedMount", `MountVolume.SetUp failed for volume "v" : ${why}`);
    await pods.event("uncertified", "Denied");
    await pods.remove("uncertified");
  });
});
