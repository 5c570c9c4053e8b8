import assert from "node:assert/strict";
import { test } from "node:test";
import { gateEnabled } from "../../../src/config/feature-gates.ts";
import { configurationDocument, defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { kubeletFile, run, textsOf } from "./files.ts";

test("defaults never warn, written out or not", () => {
  assert.deepEqual(textsOf(run([])), []);
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile("") })), []);
  assert.deepEqual(
    run(["--config=/k"], { "/k": JSON.stringify(configurationDocument(defaultConfiguration())) }).warnings,
    [],
  );
  assert.deepEqual(
    textsOf(run(["--cloud-provider=", "--bootstrap-kubeconfig=", "--pod-manifest-path=", "--node-labels="])),
    [],
  );
});

test("a setting that is not served yet is named in one line, with what happens instead", () => {
  const body =
    "staticPodPath: /etc/kubernetes/manifests\nstaticPodURL: http://127.0.0.1/\nshutdownGracePeriod: 30s\nmemorySwap: {swapBehavior: LimitedSwap}\n";
  assert.deepEqual(
    textsOf(run(["--config=/k", "--lock-file=/l", "--oom-score-adj=-500"], { "/k": kubeletFile(body) })),
    [
      "lockFile (--lock-file) is not served yet: graftlet locks its root directory instead",
      "oomScoreAdj (--oom-score-adj) is not served yet: graftlet keeps the oom_score_adj it was started with",
      "memorySwap.swapBehavior is not served yet: containers get no swap",
      "shutdownGracePeriod is not served yet: pods are not ended in order when the machine shuts down",
    ],
  );
});

test("values that make no difference do not warn", () => {
  const body =
    "memorySwap: {swapBehavior: NoSwap}\ncontentType: application/json\nimagePullCredentialsVerificationPolicy: NeverVerify\n";
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile(body) })), []);
});

test("without a kubeconfig a node that has static pods stands alone, and says so; without either it does not start", () => {
  const alone = run(["--kubeconfig=", "--pod-manifest-path=/m"]);
  assert.equal(alone.nodes[0]?.kubeconfig, undefined);
  assert.deepEqual(textsOf(alone), [
    "--kubeconfig is not given: the node stands alone, runs static pods, and speaks to no API server",
  ]);
  assert.throws(() => run(["--kubeconfig="]), /--kubeconfig is not given: graftlet needs an API server/);
});

test("warnings show no values", () => {
  const argv = ["--storage-driver-password=secret-value"];
  const warnings = textsOf(run(argv));
  assert.equal(warnings.length, 1);
  assert.ok(!warnings.join().includes("secret-value"));
});

test("gates warn where the kubelet would heed them and graftlet does not", () => {
  const warningsOf = (gates: string): readonly string[] => textsOf(run([`--feature-gates=${gates}`]));
  assert.deepEqual(warningsOf("EventedPLEG=true"), [
    "feature gate EventedPLEG=true is not served yet: graftlet behaves as it does without it",
  ]);
  assert.deepEqual(warningsOf("EventedPLEG=false,SidecarContainers=true"), []);
  assert.deepEqual(warningsOf("APIServerIdentity=false"), [], "not the kubelet's");
  assert.deepEqual(warningsOf("KubeletCrashLoopBackOffMax=false"), [], "heeded");
  assert.deepEqual(warningsOf("AllAlpha=true"), [
    "feature gate AllAlpha=true is not served yet: graftlet keeps its behaviour for alpha features",
  ]);
});

test("a gate is on as set, else by its stage, else by default", () => {
  assert.equal(gateEnabled({}, "GracefulNodeShutdown"), true);
  assert.equal(gateEnabled({ GracefulNodeShutdown: false }, "GracefulNodeShutdown"), false);
  assert.equal(gateEnabled({}, "EventedPLEG"), false);
  assert.equal(gateEnabled({ AllAlpha: true }, "EventedPLEG"), true);
  assert.equal(gateEnabled({ AllAlpha: true, EventedPLEG: false }, "EventedPLEG"), false);
  assert.equal(gateEnabled({}, "NoSuchGate"), false);
});
