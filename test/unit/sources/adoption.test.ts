import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, NamespaceMode } from "../../../src/gen/cri.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { adoptRunning } from "../../../src/sources/adoption.ts";
import { staticPod } from "../../../src/sources/static-pod.ts";
import { aContainer, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const manifest = (more: { metadata?: object; spec?: object } = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "etcd", namespace: "kube-system", labels: { tier: "control-plane" }, ...more.metadata },
  spec: { hostNetwork: true, containers: [{ name: "etcd", image: "etcd:3" }], ...more.spec },
});
const found = (more?: Parameters<typeof manifest>[0]) =>
  staticPod(manifest(more), { nodeName: "n", of: { file: "/m/etcd.yaml" } });

/** The pod as a kubelet started it. */
function running(annotations: Record<string, string> = {}): RuntimePod {
  const sandbox = aSandbox({
    linux: { namespaces: { options: { network: NamespaceMode.NODE } } } as never,
    labels: { tier: "control-plane", "io.kubernetes.pod.name": "etcd-n" },
    annotations: { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "k", ...annotations },
  });
  const status = aStatus(aContainer("etcd", { image: "etcd:3" }), ContainerState.CONTAINER_RUNNING);
  return { ...observe([sandbox], [status]), uid: "kubelets", name: "etcd-n", namespace: "kube-system" };
}

const uidOf = (one: ReturnType<typeof found>, ...pods: readonly RuntimePod[]) => {
  const cache = { get: (uid: string) => pods.find((pod) => pod.uid === uid), list: () => pods };
  const { metadata } = adoptRunning(cache, one);
  assert.equal(metadata.annotations?.["kubernetes.io/config.hash"], metadata.uid);
  return metadata.uid;
};

test("keeps the UID of a running pod that matches the manifest exactly", () => {
  assert.equal(uidOf(found(), running()), "kubelets");
});

test("treats a pod that differs as another pod", () => {
  const own = found().pod.metadata.uid;
  const other = aStatus(aContainer("etcd", { image: "etcd:4" }), ContainerState.CONTAINER_RUNNING);
  const cases: readonly (readonly [string, RuntimePod])[] = [
    ["another image", { ...running(), containers: [other] }],
    ["no containers yet", { ...running(), containers: [] }],
    ["a container more", { ...running(), containers: [...running().containers, aStatus(aContainer("x"), 1)] }],
    ["an annotation", running({ note: "x" })],
    ["a pod of the API server", running({ "kubernetes.io/config.source": "api" })],
    ["another name", { ...running(), name: "etcd-m" }],
    ["another namespace", { ...running(), namespace: "default" }],
  ];
  for (const [what, pod] of cases) assert.equal(uidOf(found(), pod), own, what);
  for (const more of [{ metadata: { labels: { tier: "x" } } }, { spec: { hostNetwork: false } }])
    assert.equal(uidOf(found(more), running()), found(more).pod.metadata.uid, JSON.stringify(more));
});

test("keeps a UID given in the manifest, and the UID of a pod that is already running", () => {
  assert.equal(uidOf(found({ metadata: { name: "etcd", namespace: "kube-system", uid: "mine" } }), running()), "mine");
  const own = found().pod.metadata.uid;
  assert.equal(uidOf(found(), { ...running(), uid: own }, running()), own);
});
