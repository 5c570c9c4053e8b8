import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parse, parseAllDocuments, stringify } from "yaml";
import { checkConfiguration, readConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { nodeEntry } from "../../../src/fleet/node-entry.ts";
import { type GraftedNodePool, withDefaults } from "../../../src/fleet/pool.ts";
import { isRecord } from "../../../src/lib/record.ts";
import { manifestPods } from "../../../src/sources/manifest-reader.ts";
import { readSshConfig } from "../../../providers/ssh/config.ts";
import { filesIo, kubeletFile, run } from "../config/files.ts";
import { blocksOf, pages, yamlIsFor } from "./pages.ts";

const examples = pages.flatMap(blocksOf).filter(({ language }) => language === "yaml");

/** Reads a KubeletConfiguration, with or without its head, as `--config` does. */
function readKubelet(text: string): void {
  const whole = /^kind: /m.test(text) ? text : kubeletFile(text);
  checkConfiguration(readConfiguration(filesIo({ "/kubelet.yaml": whole }), "/kubelet.yaml"));
}

/** Reads settings of the ssh provider, of which an example may leave out where the machine is and how it is logged in to. */
function readSsh(text: string): void {
  const given = parse(text) as Record<string, unknown>;
  const login = { host: "edge-1.example", user: "root", privateKeyFile: "/key" };
  const checked = "hostCertificateAuthorities" in given || "hostKeyFingerprints" in given;
  readSshConfig({ ...login, ...(!checked && { knownHostsFile: "/known_hosts" }), ...given });
}

/** Reads a pod as a static pod is read: unknown fields are those of no pod. */
function readPod(object: Record<string, unknown>): void {
  const origin = { nodeName: "edge-1", of: { file: "/pod.yaml" } };
  const pods = manifestPods({ text: stringify(object), origin, lists: false });
  assert.deepEqual(
    pods.flatMap(({ unknown }) => unknown),
    [],
  );
}

/** Reads a part of a pod's spec as a pod's that has but a container besides. */
function readPodPart(text: string): void {
  const given = parse(text) as Record<string, unknown>;
  const containers = given["containers"] ?? [{ name: "main" }];
  assert.ok(Array.isArray(containers));
  const named = containers.map((container: unknown) => ({ image: "busybox", ...(isRecord(container) && container) }));
  readPod({ apiVersion: "v1", kind: "Pod", metadata: { name: "example" }, spec: { ...given, containers: named } });
}

/** The kubelet's settings of each node in values of the chart; the chart itself reads all else (test/contract/documents.test.ts). */
function readValues(text: string): void {
  const { nodes = {} } = parse(text) as { nodes?: Readonly<Record<string, Readonly<Record<string, unknown>> | null>> };
  for (const { kubeletConfiguration } of Object.values(nodes).filter((node) => node !== null))
    if (kubeletConfiguration) readKubelet(stringify(kubeletConfiguration));
}

function readNodes(text: string): void {
  assert.ok(run(["--nodes=/nodes.yaml"], { "/nodes.yaml": text }).nodes.length > 0);
}

/** Reads a CredentialProviderConfig whose programs are all there. */
function readProviders(text: string): void {
  const { providers } = parse(text) as { providers: readonly { readonly name: string }[] };
  const programs = Object.fromEntries(providers.map(({ name }) => [`/bin/${name}`, ""]));
  const flags = ["--image-credential-provider-config=/c.yaml", "--image-credential-provider-bin-dir=/bin"];
  const [node] = run(flags, { "/c.yaml": text, ...programs }).nodes;
  assert.equal(node?.credentialProviders?.providers.length, providers.length);
}

/** Reads GraftedNodes, each with the template of the pool beside it, as a release that allows their names. */
function readMachines(text: string): void {
  const file = "kubeletAddress: service\nfleet: { release: edge, nodeNames: [edge-*] }\n";
  const kind = "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n";
  const io = filesIo({ "/nodes.yaml": kind + file }, { KUBERNETES_SERVICE_HOST: "10.0.0.1" });
  const asked = parseCommandLine(["--nodes=/nodes.yaml"], io);
  assert.ok(asked.kind === "run" && asked.fleet);
  const objects = parseAllDocuments(text).map((document) => document.toJS() as GraftedNode & { readonly kind: string });
  const pool = objects.find((object) => object.kind === "GraftedNodePool") as GraftedNodePool | undefined;
  const machines = objects.filter((object) => object.kind === "GraftedNode");
  assert.ok(machines.length > 0);
  for (const machine of machines) {
    const whole = withDefaults(machine, pool);
    const { hostKeyFingerprints, hostCertificateAuthorities } = whole.spec.ssh;
    const isKnown = hostKeyFingerprints !== undefined || hostCertificateAuthorities !== undefined;
    const logins = [{ privateKeyFile: "/key", ...(!isKnown && { knownHostsFile: "/known_hosts" }) }];
    const listener = { port: 2222, hostKeyFile: "/listener", authorizedKeysFile: "/authorized_keys" };
    const reverse = whole.spec.ssh.reverse && listener;
    const input = { providerID: "graftlet://a/b/c", port: 10_250, kubeletService: "edge-1", logins, reverse };
    const entry = nodeEntry(whole, input);
    const node = asked.fleet.decodeNode(entry, { title: machine.metadata.name, certificateSecret: "c" });
    readSshConfig(node.providerConfig);
  }
}

/** How graftlet reads an example, by what it is for. What the cluster alone reads is only YAML here. */
const readers: Readonly<Record<string, (text: string) => void>> = {
  KubeletConfiguration: readKubelet,
  GraftletConfiguration: readNodes,
  CredentialProviderConfig: readProviders,
  "settings of the ssh provider": readSsh,
  "values of the chart": readValues,
  "overlay of the chart's values": readValues,
  "part of a pod's spec": readPodPart,
  Pod: (text) => readPod(parse(text) as Record<string, unknown>),
  GraftedNode: readMachines,
  GraftedNodePool: readMachines,
  RuntimeClass: () => undefined,
  ResourceClaimTemplate: () => undefined,
  // The API server alone accepts claims and certificates.
  "part of the spec of a pod with claims": () => undefined,
  "part of the spec of a pod with certificates": () => undefined,
  "part of a DaemonSet": () => undefined,
  "entry of the ConfigMap argocd-cm": () => undefined,
};

describe("YAML examples in the documents", () => {
  test("each YAML example states its purpose in the first line or has a kind", () => {
    assert.ok(examples.length > 20);
    const astray = examples.filter((example) => !(yamlIsFor(example) in readers));
    assert.deepEqual(
      astray.map(({ place, text }) => `${place}: ${text.split("\n")[0]}`),
      [],
    );
  });

  for (const example of examples)
    test(`graftlet or the chart accepts the YAML example at ${example.place}`, () => {
      assert.deepEqual(
        parseAllDocuments(example.text).flatMap(({ errors }) => errors),
        [],
      );
      readers[yamlIsFor(example)]?.(example.text);
    });
});
