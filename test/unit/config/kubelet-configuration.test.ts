import assert from "node:assert/strict";
import { test } from "node:test";
import { configurationDocument, defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { hardEvictionDefaults } from "../../../src/config/kubelet-fields.ts";
import { kubeletFile, nodeOf, refusalOf } from "./files.ts";

function fromFile(body: string, ...argv: readonly string[]) {
  return nodeOf(["--config=/etc/kubelet.yaml", ...argv], { "/etc/kubelet.yaml": kubeletFile(body) }).kubelet;
}

test("an empty configuration has the kubelet's defaults, and is secure with or without a file", () => {
  for (const config of [fromFile(""), nodeOf([]).kubelet]) {
    assert.equal(config.port, 10250);
    assert.equal(config.readOnlyPort, 0);
    assert.equal(config.authentication.anonymous.enabled, false);
    assert.equal(config.authentication.webhook.enabled, true);
    assert.equal(config.authorization.mode, "Webhook");
    assert.equal(config.nodeStatusUpdateFrequency, 10_000);
    assert.equal(config.nodeStatusReportFrequency, 300_000);
    assert.equal(config.containerRuntimeEndpoint, "unix:///run/containerd/containerd.sock");
    assert.equal(config.failCgroupV1, false);
    assert.equal(config.serializeImagePulls, false);
    assert.equal(config.maxParallelImagePulls, undefined);
  }
  assert.deepEqual(fromFile("").evictionHard, hardEvictionDefaults);
  assert.deepEqual(nodeOf([]).kubelet.evictionHard, {});
});

test("reads values written in YAML 1.1 or JSON", () => {
  const config = fromFile(
    "registerNode: no\nauthentication: {anonymous: {enabled: yes}}\nsyncFrequency: 1m30s\nmaxPods: 0x10\n",
  );
  assert.equal(config.registerNode, false);
  assert.equal(config.authentication.anonymous.enabled, true);
  assert.equal(config.authentication.webhook.cacheTTL, 120_000);
  assert.equal(config.syncFrequency, 90_000);
  assert.equal(config.maxPods, 16);
  const json = JSON.stringify({
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    port: 1250,
    clusterDNS: ["10.0.0.10"],
  });
  const node = nodeOf(["--config=/k.json"], { "/k.json": json });
  assert.equal(node.kubelet.port, 1250);
  assert.deepEqual(node.kubelet.clusterDNS, ["10.0.0.10"]);
});

test("treats zero as unset in value fields, but as a value in pointer fields", () => {
  const config = fromFile(
    'port: 0\nsyncFrequency: 0s\naddress: ""\nhealthzPort: 0\nresolvConf: ""\nregistryPullQPS: 0\nmaxPods: null\n',
  );
  assert.equal(config.port, 10250);
  assert.equal(config.syncFrequency, 60_000);
  assert.equal(config.address, "0.0.0.0");
  assert.equal(config.healthzPort, 0);
  assert.equal(config.resolvConf, "");
  assert.equal(config.registryPullQPS, 0);
  assert.equal(config.maxPods, 110);
});

test("computes defaults that depend on other fields", () => {
  assert.equal(fromFile("nodeStatusUpdateFrequency: 4s\n").nodeStatusReportFrequency, 4000);
  assert.equal(
    fromFile("nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 1m\n").nodeStatusReportFrequency,
    60_000,
  );
  assert.equal(fromFile("maxParallelImagePulls: 1\n").serializeImagePulls, true);
  assert.equal(fromFile("maxParallelImagePulls: 5\n").serializeImagePulls, false);
  assert.equal(fromFile("serializeImagePulls: true\n").serializeImagePulls, true);
  assert.equal(fromFile("podPidsLimit: -7\n").podPidsLimit, -1);
  assert.deepEqual(fromFile("evictionHard: {pid.available: 5%}\n").evictionHard, { "pid.available": "5%" });
  assert.deepEqual(
    fromFile("evictionHard: {nodefs.available: 5%}\nmergeDefaultEvictionSettings: true\n").evictionHard,
    {
      ...hardEvictionDefaults,
      "nodefs.available": "5%",
    },
  );
});

test("resolves relative paths from the file's directory", () => {
  const config = fromFile("authentication: {x509: {clientCAFile: ca.crt}}\nresolvConf: /run/resolv.conf\n");
  assert.equal(config.authentication.x509.clientCAFile, "/etc/ca.crt");
  assert.equal(config.resolvConf, "/run/resolv.conf");
});

test("flags override drop-ins, and drop-ins, in lexical order, override the file", () => {
  const files = {
    "/k.yaml": kubeletFile(
      "maxPods: 1\nport: 1111\nsystemReserved: {cpu: 100m}\nclusterDNS: [10.0.0.1]\nfeatureGates: {EnvFiles: false}\n",
    ),
    "/d/20-b.conf": kubeletFile("maxPods: 20\nport: null\nsystemReserved: {memory: 1Gi}\nclusterDNS: [10.0.0.2]\n"),
    "/d/10-a/deep.conf": kubeletFile("maxPods: 10\naddress: 127.0.0.1\n"),
    "/d/readme.txt": "not: [read",
  };
  const argv = ["--config=/k.yaml", "--config-dir=/d/"];
  const { kubelet } = nodeOf(argv, files);
  assert.equal(kubelet.maxPods, 20);
  assert.equal(kubelet.address, "127.0.0.1");
  assert.equal(kubelet.port, 10250, "null resets a field");
  assert.deepEqual(kubelet.systemReserved, { cpu: "100m", memory: "1Gi" });
  assert.deepEqual(kubelet.clusterDNS, ["10.0.0.2"]);
  assert.deepEqual(kubelet.evictionHard, hardEvictionDefaults);
  const flagged = nodeOf([...argv, "--max-pods=30", "--feature-gates=EventedPLEG=true"], files).kubelet;
  assert.equal(flagged.maxPods, 30);
  assert.deepEqual(flagged.featureGates, { EnvFiles: false, EventedPLEG: true });
});

test("encodes a configuration to a document that decodes to the same configuration", () => {
  const config = fromFile(
    "syncFrequency: 90s\ncrashLoopBackOff: {maxContainerRestartPeriod: 10s}\nregisterWithTaints: [{key: a, effect: NoExecute}]\nimagePullCredentialsVerificationPolicy: NeverVerify\n",
  );
  const document = configurationDocument(config);
  assert.equal(document["syncFrequency"], "1m30s");
  assert.equal(document["kind"], "KubeletConfiguration");
  assert.deepEqual(nodeOf(["--config=/k.json"], { "/k.json": JSON.stringify(document) }).kubelet, config);
});

test("allows names without tag or digest in the image allowlist, with an asterisk only as the last part", () => {
  const withList = (pattern: string) =>
    fromFile(
      `imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [${JSON.stringify(pattern)}]\n`,
    );
  for (const pattern of ["a/*", "registry.test:5000/team/app", "busybox", "docker.io/library/*"])
    assert.deepEqual(configurationDocument(withList(pattern))["preloadedImagesVerificationAllowlist"], [pattern]);
  for (const pattern of ["a:v1", " a", "a ", "/*", "*", "a/*/b", "*/a", "a*", "", `a@sha256:${"0".repeat(64)}`])
    assert.throws(() => withList(pattern), /preloadedImagesVerificationAllowlist/, pattern);
});

test("the document includes static pod sources and their headers", () => {
  const given = {
    staticPodURL: "https://pods.example/node-1",
    staticPodURLHeader: { Authorization: ["value", "another"] },
  };
  const { staticPodURL, staticPodURLHeader } = configurationDocument({ ...defaultConfiguration(), ...given });
  assert.deepEqual({ staticPodURL, staticPodURLHeader }, given);
});

const path = "/etc/kubelet.yaml";
const refusals: readonly [string, string][] = [
  ["prot: 1", `${path}: prot is 1: is not a field of this configuration; did you mean port?`],
  [
    "authentication: {anonymus: {enabled: true}}",
    `${path}: authentication.anonymus is not a field of this configuration; did you mean anonymous?`,
  ],
  ['port: "10250"', `${path}: port (--port) is "10250": expected a whole number from -2147483648 to 2147483647`],
  ["syncFrequency: 60", `${path}: syncFrequency (--sync-frequency) is 60: expected a duration such as "1m30s"`],
  ["enableServer: 1", `${path}: enableServer (--enable-server) is 1: expected true or false`],
  [
    "clusterDNS: 10.0.0.1",
    `${path}: clusterDNS (--cluster-dns) is "10.0.0.1": expected a list of strings such as ["a", "b"] (in a flag: a,b)`,
  ],
  [
    "systemReserved: {cpu: 1}",
    `${path}: systemReserved (--system-reserved) is {"cpu":1}: expected a map of strings, values in quotes (in a flag: key=value)`,
  ],
  ["authentication: true", `${path}: authentication is true: expected a group of fields; indent them below it`],
  ["cgroupDriver: docker", `${path}: cgroupDriver (--cgroup-driver) is "docker": expected cgroupfs or systemd`],
  [
    'staticPodURLHeader: {Authorization: "secret-value"}',
    `${path}: staticPodURLHeader (--manifest-url-header) expected a map from header to a list of strings (in a flag: name:value)`,
  ],
];
for (const [body, sentence] of refusals) {
  test(`refuses the configuration ${body}`, () =>
    assert.equal(refusalOf([`--config=${path}`], { [path]: kubeletFile(body) }), sentence));
}

test("refuses a file that is not a KubeletConfiguration", () => {
  const refused = (text: string): string => refusalOf(["--config=/k"], { "/k": text });
  assert.equal(
    refused("kind: KubeletConfiguration\n"),
    "/k: apiVersion is null: write apiVersion: kubelet.config.k8s.io/v1beta1",
  );
  assert.equal(
    refused("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n"),
    '/k: kind is "Pod": write kind: KubeletConfiguration',
  );
  assert.equal(refused("- a\n"), '--config is "/k": the file does not contain an object; write fields as name: value');
  assert.match(refused("a: [1\n"), /^--config is "\/k": the file is not valid YAML: /);
  assert.match(
    refused(kubeletFile("port: 1\nport: 2\n")),
    /^--config is "\/k": the file is not valid YAML: Map keys must be unique/,
  );
  assert.match(refused("a: *b\n"), /^--config is "\/k": the file is not valid YAML: Unresolved alias/);
  const laughs = [...Array(8).keys()].map((depth) => `a${depth + 1}: &a${depth + 1} [${`*a${depth}, `.repeat(9)}]\n`);
  assert.match(
    refused(`a0: &a0 [x]\n${laughs.join("")}`),
    /^--config is "\/k": the file is not valid YAML: Excessive alias/,
  );
  assert.equal(
    refused(`${kubeletFile("")}---\na: 1\n`),
    '--config is "/k": the file contains several documents; keep one',
  );
  assert.equal(
    refusalOf(["--config=/none"]),
    '--config is "/none": there is no such file; set the path of an existing one',
  );
  assert.equal(
    refusalOf(["--config-dir=/none"]),
    '--config-dir is "/none": there is no such file; set the path of an existing one',
  );
});
