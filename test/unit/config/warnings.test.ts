import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gateEnabled, gateWarnings } from "../../../src/config/feature-gates.ts";
import { configurationDocument, defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { kubeletFields } from "../../../src/config/kubelet-fields.ts";
import { optionFields } from "../../../src/config/option-fields.ts";
import { fieldsOf } from "../../../src/config/schema.ts";
import { kubeletFile, run, textsOf } from "./files.ts";

test("never warns of a default, even if it is set explicitly", () => {
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

test("warns of an unsupported setting in one line that states the actual behaviour", () => {
  const body =
    "staticPodPath: /etc/kubernetes/manifests\nstaticPodURL: http://127.0.0.1/\nshutdownGracePeriod: 30s\nmemorySwap: {swapBehavior: LimitedSwap}\n";
  assert.deepEqual(textsOf(run(["--config=/k", "--lock-file=/l"], { "/k": kubeletFile(body) })), [
    "lockFile (--lock-file) is not supported yet: graftlet locks its root directory instead",
  ]);
});

test("does not warn of values that do not change the behaviour", () => {
  const body = "memorySwap: {swapBehavior: NoSwap}\ncontentType: application/json\n";
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile(body) })), []);
});

/** Fields that have no effect in a kubelet 1.36 either. */
const idle = ["streamingConnectionIdleTimeout", "hairpinMode", "iptablesMasqueradeBit", "iptablesDropBit"];

/** The texts of the program's files, except those that declare fields and flags. */
function sourceTexts(): readonly string[] {
  const source = join(import.meta.dirname, "..", "..", "..", "src");
  const declared = ["config/kubelet-fields.ts", "config/kubelet-groups.ts", "config/option-fields.ts"];
  return readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !declared.includes(name))
    .map((name) => readFileSync(join(source, name), "utf8"));
}

test("every field and flag either is read by the code or has a warning", () => {
  const texts = sourceTexts();
  const ignored = [...fieldsOf({ ...kubeletFields, ...optionFields })].flatMap(([path, { instead }]) => {
    const name = new RegExp(`\\b${path.split(".").at(-1)}\\b`);
    return instead || idle.includes(path) || texts.some((text) => name.test(text)) ? [] : [path];
  });
  assert.deepEqual(ignored, []);
});

test("warns of log buffer settings, which are ignored", () => {
  const body = "logging: {format: text, flushFrequency: 1s}\n";
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile(body) })), [
    "logging.flushFrequency (--log-flush-frequency) is not supported yet: graftlet writes each line to standard error immediately",
  ]);
});

test("warns that containerfs thresholds are ignored and derived from others, as in the kubelet", () => {
  const body = "evictionHard: {containerfs.available: 5%, nodefs.available: 5%}\n";
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile(body) })), [
    "evictionHard (--eviction-hard) is not supported yet: containerfs.available is ignored: the nodefs or imagefs threshold applies, depending on which file system has the layers",
  ]);
});

test("reports unsupported kubelet defaults once for all nodes", () => {
  const all = ["kernel settings are neither checked nor changed"];
  assert.deepEqual(run(["--config=/k"], { "/k": kubeletFile("") }).defaults, all);
  assert.deepEqual(run([]).defaults, all);
  for (const isSet of ["true", "false"]) {
    const { defaults, warnings } = run(["--config=/k"], { "/k": kubeletFile(`protectKernelDefaults: ${isSet}\n`) });
    assert.deepEqual([defaults, warnings], [[], []]);
  }
  const nodes = `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
nodes: [{name: a}, {name: b, kubeletConfiguration: {protectKernelDefaults: true}}]
`;
  assert.deepEqual(run(["--nodes=/n"], { "/n": nodes }).defaults, all);
});

test("documents each unsupported kubelet default as a limitation of its field", () => {
  const page = readFileSync(join(import.meta.dirname, "..", "..", "..", "docs", "limitations.md"), "utf8");
  const unnamed = [...fieldsOf(kubeletFields)]
    .filter(([path, { actsByDefault }]) => actsByDefault && !page.includes(`\`${path}\``))
    .map(([path]) => path);
  assert.deepEqual(unnamed, []);
});

test("warns of per-node log settings, because the process's log is configured on the command line", () => {
  assert.equal(run([]).logging.format, "json");
  assert.equal(run(["--config=/k"], { "/k": kubeletFile("logging: {format: text}\n") }).logging.format, "text");
  const ofNode = "{format: text, verbosity: 4, vmodule: [{filePattern: pleg, verbosity: 5}]}";
  const nodes = `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
nodes: [{name: a}, {name: b, kubeletConfiguration: {logging: ${ofNode}}}]
`;
  const flags = ["--nodes=/n", "--logging-format=text", "--vmodule=pod-*=5,pleg=3"];
  const { logging, warnings } = run(flags, { "/n": nodes });
  assert.equal(logging.format, "text");
  assert.deepEqual(logging.vmodule, [
    { filePattern: "pod-*", verbosity: 5 },
    { filePattern: "pleg", verbosity: 3 },
  ]);
  assert.equal(logging.verbosity, 0);
  assert.deepEqual(warnings, [
    {
      node: "b",
      text: "logging.format of a single node has no effect: all nodes of --nodes share one log; use --logging-format",
    },
    { node: "b", text: "logging.verbosity of a single node has no effect: all nodes of --nodes share one log; use -v" },
    {
      node: "b",
      text: "logging.vmodule of a single node has no effect: all nodes of --nodes share one log; use --vmodule",
    },
  ]);
});

test("accepts vmodule only in the text format, as the kubelet does", () => {
  const remedy = "only supported for text log format; set logging.format (--logging-format) to text";
  const message = `logging.vmodule (--vmodule) is [{"filePattern":"pleg","verbosity":5}]: ${remedy}`;
  assert.throws(() => run(["--vmodule=pleg=5"]), { message });
  const nodes = "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nnodes: [{name: a}]\n";
  assert.throws(() => run(["--nodes=/n", "--vmodule=pleg=5"], { "/n": nodes }), { message });
  assert.throws(() => run(["--logging-format=text", `--vmodule=pleg=${2 ** 31}`]), /use verbosities of 0 or more/);
});

test("without a kubeconfig, a node with static pods runs standalone with a warning, and other nodes do not start", () => {
  const alone = run(["--kubeconfig=", "--pod-manifest-path=/m"]);
  assert.equal(alone.nodes[0]?.kubeconfig, undefined);
  assert.deepEqual(textsOf(alone), [
    "--kubeconfig is not set: the node runs standalone, with static pods only and without an API server",
  ]);
  assert.throws(() => run(["--kubeconfig="]), /--kubeconfig is not given: graftlet needs an API server/);
});

test("warnings do not contain the configured values", () => {
  const argv = ["--storage-driver-password=secret-value"];
  const warnings = textsOf(run(argv));
  assert.equal(warnings.length, 1);
  assert.ok(!warnings.join().includes("secret-value"));
});

test("warns of feature gates that the kubelet implements but graftlet does not", () => {
  const warningsOf = (gates: string): readonly string[] => textsOf(run([`--feature-gates=${gates}`]));
  assert.deepEqual(warningsOf("EventedPLEG=true"), [
    "feature gate EventedPLEG=true is not supported yet: it has no effect in graftlet",
  ]);
  assert.deepEqual(warningsOf("EventedPLEG=false,SidecarContainers=true"), []);
  assert.deepEqual(warningsOf("APIServerIdentity=false"), [], "not the kubelet's");
  assert.deepEqual(warningsOf("KubeletCrashLoopBackOffMax=false"), [], "heeded");
  assert.deepEqual(warningsOf("GracefulNodeShutdown=false,GracefulNodeShutdownBasedOnPodPriority=false"), []);
  assert.deepEqual(warningsOf("AllAlpha=true"), [
    "feature gate AllAlpha=true is not supported yet: graftlet keeps its behaviour for alpha features",
  ]);
});

test("does not warn of implemented feature gates or the settings that depend on them", () => {
  const asked = sourceTexts().flatMap((text) => [...text.matchAll(/gateEnabled\([^()]*, "(\w+)"\)/g)]);
  assert.ok(asked.length > 5);
  // That gate is locked: it may only be set to its default.
  const gates = new Set(asked.map(([, gate = ""]) => gate)).difference(new Set(["NodeSwap"]));
  for (const gate of gates) for (const on of [true, false]) assert.deepEqual(gateWarnings({ [gate]: on }), [], gate);
  const body =
    "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.8\nmemoryReservationPolicy: TieredReservation\n";
  assert.deepEqual(textsOf(run(["--config=/k"], { "/k": kubeletFile(body) })), []);
});

test("a feature gate's state is its own setting, else the setting of AllAlpha or AllBeta, else the default", () => {
  assert.equal(gateEnabled({}, "GracefulNodeShutdown"), true);
  assert.equal(gateEnabled({ GracefulNodeShutdown: false }, "GracefulNodeShutdown"), false);
  assert.equal(gateEnabled({}, "EventedPLEG"), false);
  assert.equal(gateEnabled({ AllAlpha: true }, "EventedPLEG"), true);
  assert.equal(gateEnabled({ AllAlpha: true, EventedPLEG: false }, "EventedPLEG"), false);
  assert.equal(gateEnabled({}, "NoSuchGate"), false);
});
