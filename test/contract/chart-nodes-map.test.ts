import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { V1ConfigMap } from "@kubernetes/client-node";
import { parse } from "yaml";
import { objectsIn, ofKind, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { run } from "../harness/processes.ts";
import { blocksOf, yamlIsFor } from "../unit/documents/pages.ts";

type Entry = Readonly<Record<string, unknown>> & { readonly name: string };

/** Settings of a node whose key is its name. */
const node = (key: string, host = "192.0.2.7") => [
  `nodes.${key}.ssh.host=${host}`,
  `nodes.${key}.ssh.existingSecret=key`,
];

/** Settings beside those of a node that is right, and what helm says of them. */
const wrong: readonly (readonly [readonly string[], RegExp])[] = [
  [["nodes=edge-1"], /^- at '\/nodes': got string, want array or object$/m],
  [["nodes.edge-2=192.0.2.8"], /^- at '\/nodes\/edge-2': got string, want null or object$/m],
  [["nodes.edge-1.prot=10250"], /^- at '\/nodes\/edge-1': additional properties 'prot' not allowed$/m],
  [["nodes.edge-1.ssh.hots=x"], /^- at '\/nodes\/edge-1\/ssh': additional properties 'hots' not allowed$/m],
  [["nodes.edge-1.taints[0].key=a"], /^- at '\/nodes\/edge-1\/taints\/0': missing property 'effect'$/m],
  [
    ["nodes.edge-1.name=edge-2"],
    /nodes\.edge-1\.name: "edge-2" differs from the key edge-1, which is the node's name: leave name out, or change the key/,
  ],
  [node("Edge_2"), /nodes\.Edge_2: the key "Edge_2" cannot be a node's name: write at most 63 lower-case letters/],
  [["nodes.edge-1.ssh.existingSecret="], /nodes\.edge-1\.ssh has no way to log in: name a Secret/],
  [
    ["nodes.press\\.hall.labels.a=b"],
    /nodes\.press\\\.hall does not say how its machine is reached: add ssh with host/,
  ],
  [
    ["nodes.edge-1.kubeletConfiguration.port=1"],
    /nodes\.edge-1\.kubeletConfiguration\.port: set nodes\.edge-1\.port instead/,
  ],
  [
    [...node("edge-2"), "nodes.edge-1.port=1", "nodes.edge-2.port=1"],
    /nodes\.edge-2\.port: nodes\.edge-1 also has port 1: give each node its own port, or leave port out/,
  ],
  [
    [...node("edge-2"), "nodes.edge-1.rootDir=/var/lib/kubelet", "nodes.edge-2.rootDir=/var/lib/kubelet"],
    /nodes\.edge-2\.rootDir: nodes\.edge-1 also has \/var\/lib\/kubelet on that machine: give each node its own/,
  ],
  [
    [...node("pods"), "nodes.edge-1.rootDir=/var/lib/kubelet"],
    /nodes\.pods\.rootDir: nodes\.edge-1 stores its own files in \/var\/lib\/kubelet\/pods/,
  ],
];

describe("a map of nodes by name in the chart's values", { timeout: 600_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-nodes-map-"));
  let helm: string;
  /** What helm makes of values, each an object in a file of its own, and of further arguments. */
  const template = (values: readonly object[], ...more: readonly string[]) => {
    const files = values.map((value, index) => {
      const path = join(folder, `${index}.json`);
      writeFileSync(path, JSON.stringify(value));
      return `--values=${path}`;
    });
    return run([helm, ...templateArguments(...files, ...more)]);
  };
  /** As `template`, for what helm must accept without a warning. */
  const render = async (values: readonly object[], ...more: readonly string[]) => {
    const { code, stdout, stderr } = await template(values, ...more);
    assert.deepEqual([code, stderr], [0, ""]);
    return stdout;
  };
  /** The nodes of graftlet's own configuration in a render. */
  const nodesIn = (text: string): readonly Entry[] => {
    const [map] = ofKind<V1ConfigMap>(objectsIn(text), "ConfigMap");
    return (parse(map?.data?.["nodes.yaml"] ?? "") as { readonly nodes: readonly Entry[] }).nodes;
  };

  before(async () => {
    helm = await findHelm();
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  for (const { name, path } of valueFiles())
    test(`renders a map of the nodes of ${name} like a list sorted by name`, async () => {
      const values = parse(readFileSync(path, "utf8")) as { readonly nodes: readonly Entry[] };
      const list = values.nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
      const map = Object.fromEntries(values.nodes.map(({ name: key, ...entry }) => [key, entry]));
      assert.equal(await render([{ ...values, nodes: map }]), await render([{ ...values, nodes: list }]));
    });

  test("removes a node that a later file sets to null, and all objects of nodes if it was the last one", async () => {
    const ssh = { host: "192.0.2.7", existingSecret: "key" };
    const one = { nodes: { "edge-1": { ssh } } };
    const gone = { nodes: { "edge-2": null } };
    const both = { nodes: { "edge-1": { ssh }, "edge-2": { ssh } } };
    assert.equal(await render([both, gone]), await render([one]));
    assert.equal(await render([{ nodes: { "edge-2": { ssh } } }, gone]), await render([]));
    assert.equal(await render([gone]), await render([]));
  });

  test("the documented overlay and --set change only the values that they contain", async () => {
    const example = (page: string, use: string) =>
      parse(blocksOf(page).find((block) => yamlIsFor(block) === use)?.text ?? "") as object;
    const base = example("docs/chart-nodes.md", "values of the chart");
    const overlay = example("docs/gitops.md", "overlay of the chart's values");
    const [first] = nodesIn(await render([base]));
    assert.ok(first);
    const set = ["--set=nodes.edge-1.ssh.port=2222", "--set=nodes.edge-1.name=edge-1"];
    assert.deepEqual(nodesIn(await render([base, overlay], ...set)), [
      {
        ...first,
        labels: { ...(first["labels"] as object), site: "north" },
        providerConfig: { ...(first["providerConfig"] as object), port: 2222 },
      },
    ]);
  });

  test("accepts nodes from --set alone, even with a dot in a name", async () => {
    const set = [...node("press\\.hall"), ...node("edge-1")].map((each) => `--set=${each}`);
    const names = nodesIn(await render([], ...set)).map(({ name }) => name);
    assert.deepEqual(names, ["edge-1", "press.hall"]);
  });

  for (const [settings, sentence] of wrong)
    test(`rejects ${settings.join(" ")}`, async () => {
      const set = [...(settings[0] === "nodes=edge-1" ? [] : node("edge-1")), ...settings];
      const { code, stdout, stderr } = await template([], ...set.map((each) => `--set=${each}`));
      assert.match(stderr, sentence);
      assert.deepEqual([code, stdout], [1, ""]);
    });
});
