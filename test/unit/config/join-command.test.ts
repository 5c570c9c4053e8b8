import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, refusalOf, sentenceOf } from "./files.ts";

const fleet = ["--fleet=graftlet/edge", "--kubeconfig=/kubeconfig"];
const source = "ConfigMap graftlet/edge-graftlet.site-a";
const kind = "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nkubeletAddress: service\n";
const outside = "outside: { addresses: [192.0.2.10], firstPort: 20350 }";
const configuration = (release = "edge", more = outside) =>
  `${kind}healthzPort: 0\nfleet: { release: ${release}, nodeNames: [edge-*], ${more} }\n`;

function join(...flags: readonly string[]) {
  const command = parseCommandLine([...fleet, ...flags], filesIo());
  assert.equal(command.kind, "join");
  return command;
}

test("--fleet names a release, whose configuration completes the command line", () => {
  const command = join("--cert-dir=/pki", "-v=4", "--page-port=4194");
  const { namespace, release, kubeconfig, logging } = command;
  assert.deepEqual([namespace, release, kubeconfig, logging.verbosity], ["graftlet", "edge", "/kubeconfig", 4]);
  const run = command.complete(source, configuration());
  assert.deepEqual(run.fleet?.outside, { addresses: ["192.0.2.10"], firstPort: 20_350 });
  assert.deepEqual([run.nodes, run.health, run.page?.port, run.several], [[], undefined, 4194, true]);
  const object = { title: "GraftedNode edge-1", certificateSecret: "own" };
  const entry = { name: "edge-1", provider: "ssh", port: 20_350, kubeletService: "graftlet-edge-1" };
  const node = run.fleet?.decodeNode(entry, object);
  // The node has a certificate of its own, and not the account's identity.
  assert.deepEqual([node?.kubeconfig, node?.certificateSecret], [undefined, "own"]);
  assert.deepEqual(node?.kubeletAddress, { of: "service", service: "graftlet-edge-1" });
});

test("refuses a configuration that is not that of a replica outside the cluster", () => {
  const refused = (text: string) => sentenceOf(() => join().complete(source, text));
  assert.match(refused(configuration("other")), /^--fleet is "graftlet\/edge": ConfigMap .* of release edge$/);
  assert.match(refused(configuration("edge", "")), /is not that of a replica of release edge$/);
  assert.match(refused("kind: X"), /^ConfigMap graftlet\/edge-graftlet\.site-a: apiVersion/);
});

test("refuses flags that contradict --fleet, each with the remedy", () => {
  const refused = (...flags: readonly string[]) => refusalOf(["--fleet=graftlet/edge", ...flags]);
  assert.match(refusalOf(["--fleet=edge"]), /^--fleet is "edge": use NAMESPACE\/NAME/);
  assert.match(refused("--nodes=/nodes.yaml"), /^--nodes is "\/nodes.yaml": it cannot be used with --fleet/);
  assert.match(refused("--node-ip=192.0.2.1"), /^--node-ip.*cannot be used with --fleet; set it in the GraftedNode$/);
  const without = sentenceOf(() => parseCommandLine(["--fleet=graftlet/edge"], filesIo()));
  assert.match(without, /^--kubeconfig is not given/);
  const inPod = sentenceOf(() => parseCommandLine(fleet, filesIo({}, { KUBERNETES_SERVICE_HOST: "10.0.0.1" })));
  assert.match(inPod, /^--fleet .* it is for graftlet outside the cluster/);
  for (const command of ["doctor", "remove", "leave"])
    assert.match(
      sentenceOf(() => parseCommandLine([command, ...fleet], filesIo())),
      /^--fleet .* this command does not use it/,
    );
});
