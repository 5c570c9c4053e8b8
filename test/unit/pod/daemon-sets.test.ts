import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod, PodSpec, PodStatus } from "../../../src/objects.ts";
import { type DaemonSets, decideDaemonSetPod } from "../../../src/pod/daemon-sets.ts";
import { placeholderReason, placeholderStatus } from "../../../src/pod/placeholder.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const daemonSet = { apiVersion: "apps/v1", kind: "DaemonSet", name: "d", uid: "d-1", controller: true };
const ofDaemonSet = (spec: Partial<PodSpec> = {}, annotations: Record<string, string> = {}): Pod =>
  aPod(spec, { ownerReferences: [daemonSet], annotations });
const mounting = (path: string, annotations = {}) =>
  ofDaemonSet({ volumes: [{ name: "v", hostPath: { path } }] }, annotations);
const marked: PodStatus = { phase: "Running", reason: placeholderReason };

/** `pod` or `placeholder`, with a `!` if it must be replaced. */
function standing(pod: Pod, setting: DaemonSets | undefined, status?: PodStatus, existsInRuntime = false): string {
  const { kind, isFinal } = decideDaemonSetPod({ pod, status, existsInRuntime, setting, rootDir: "/var/lib/kubelet" });
  return isFinal ? kind : `${kind}!`;
}
const standings = (pod: Pod, status?: PodStatus, exists?: boolean) =>
  (["none", "selected", "all", undefined] as const).map((choice) => standing(pod, choice, status, exists)).join(" ");

test("a new DaemonSet pod is a placeholder unless it, or every DaemonSet, is selected", () => {
  assert.equal(standings(ofDaemonSet()), "placeholder placeholder pod placeholder");
  assert.equal(standings(ofDaemonSet(), { phase: "Pending" }), "placeholder placeholder pod placeholder");
});

test("selects pods by annotation, or by mounting a plugin directory unless the annotation excludes them", () => {
  const selected = (pod: Pod) => standing(pod, "selected");
  assert.equal(selected(ofDaemonSet({}, { "graftlet.dev/run": "true" })), "pod");
  assert.equal(selected(ofDaemonSet({}, { "graftlet.dev/run": "yes" })), "placeholder");
  for (const path of ["plugins", "plugins/ebs.csi.aws.com/", "plugins_registry", "device-plugins"])
    assert.equal(selected(mounting(`/var/lib/kubelet/${path}`)), "pod", path);
  for (const path of ["/var/lib/kubelet", "/var/lib/kubelet/pods", "/var/lib/kubelet/plugins-of-mine", "/", "/plugins"])
    assert.equal(selected(mounting(path)), "placeholder", path);
  assert.equal(selected(mounting("/var/lib/kubelet/plugins", { "graftlet.dev/run": "false" })), "placeholder");
  assert.equal(standing(ofDaemonSet({}, { "graftlet.dev/run": "true" }), "none"), "placeholder", "none is none");
});

test("pods not owned by a DaemonSet of the API group apps run, including static pods", () => {
  const always = "pod pod pod pod";
  assert.equal(standings(aPod()), always);
  assert.equal(standings(aPod({}, { ownerReferences: [{ ...daemonSet, kind: "ReplicaSet" }] })), always);
  assert.equal(standings(aPod({}, { ownerReferences: [{ ...daemonSet, controller: false }] })), always);
  assert.equal(standings(aPod({}, { ownerReferences: [{ ...daemonSet, apiVersion: "apps.kruise.io/v1" }] })), always);
  assert.equal(standings(ofDaemonSet({}, { "kubernetes.io/config.source": "file" })), always);
});

test("a pod never changes between running and placeholder: it is replaced, unless the setting is unknown", () => {
  const pod = ofDaemonSet();
  assert.equal(standings(pod, { phase: "Running" }), "pod! pod! pod pod");
  assert.equal(standings(pod, { phase: "Pending" }, true), "pod! pod! pod pod");
  assert.equal(standings(pod, marked), "placeholder placeholder placeholder! placeholder");
});

test("the runtime's containers take precedence over the status; a placeholder without its DaemonSet does not start", () => {
  assert.equal(standings(ofDaemonSet(), marked, true), "pod! pod! pod pod");
  assert.equal(standings(ofDaemonSet(), { ...marked, podIP: "10.0.0.1" }), "pod! pod! pod pod");
  assert.equal(standings(aPod(), marked), "placeholder placeholder placeholder placeholder");
  assert.equal(standings(aPod(), marked, true), "pod pod pod pod");
});

test("a pod that ends before it started ends like any other", () => {
  const ending = aPod({}, { ownerReferences: [daemonSet], deletionTimestamp: "2026-01-01T00:00:00Z" });
  assert.match(standing(ending, "none"), /^pod/);
});

test("a placeholder's status is ready without containers and pod IPs; a final phase is kept", () => {
  const pod = aPod({ containers: [aContainer("c"), aContainer("d")] }, { generation: 3 });
  const status = placeholderStatus(pod, ["192.0.2.7", "2001:db8::7"]);
  const { conditions = [], message, ...rest } = status;
  assert.deepEqual(rest, {
    phase: "Running",
    reason: "NotRunByGraftlet",
    qosClass: "BestEffort",
    hostIP: "192.0.2.7",
    hostIPs: [{ ip: "192.0.2.7" }, { ip: "2001:db8::7" }],
  });
  assert.match(message ?? "", /^this pod does not run: /);
  assert.deepEqual(
    conditions.map((one) => `${one.type} ${one.status} ${one.observedGeneration}`),
    [
      "PodReadyToStartContainers False 3",
      "Initialized True 3",
      "Ready True 3",
      "ContainersReady True 3",
      "PodScheduled True 3",
    ],
  );
  assert.equal(placeholderStatus({ ...pod, status: { phase: "Failed" } }, []).phase, "Failed");
});
