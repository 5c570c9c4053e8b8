import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import type { V1ConfigMap, V1Role, V1Secret } from "@kubernetes/client-node";
import { parse } from "yaml";
import { objectsIn, ofKind, type Rendered, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

interface Configuration {
  readonly certificateSecret: string;
  readonly nodes: readonly { readonly name: string; readonly certificateSecret?: string }[];
}

const shared = "edge-graftlet-certificates";

describe("the Secrets with the nodes' certificates", { timeout: 300_000 }, () => {
  let helm: string;
  const rendered = async (path: string, ...more: readonly string[]) =>
    objectsIn(await must([helm, ...templateArguments("--values", path, ...more)]));
  const pathOf = (name: string) => valueFiles().find((file) => file.name === name)?.path ?? "";
  const configurationIn = (objects: readonly Rendered[]) => {
    const [map] = ofKind<V1ConfigMap>(objects, "ConfigMap");
    return parse(map?.data?.["nodes.yaml"] ?? "") as Configuration;
  };
  const secretsIn = (objects: readonly Rendered[]) =>
    ofKind<V1Secret>(objects, "Secret").filter(({ metadata }) => metadata?.name?.startsWith(shared));
  /** Rules of the release's own Role about Secrets. */
  const rulesIn = (objects: readonly Rendered[]) =>
    ofKind<V1Role>(objects, "Role")
      .filter(({ metadata }) => metadata?.name === "edge-graftlet" && metadata.namespace === "graftlet")
      .flatMap(({ rules = [] }) => rules.filter(({ resources }) => resources?.includes("secrets")))
      .map(({ resourceNames, verbs }) => [resourceNames, verbs]);
  before(async () => {
    helm = await findHelm();
  });

  test("each node has one, which Helm creates without data, and the account may read and patch only these", async () => {
    for (const { name, path } of valueFiles()) {
      const objects = await rendered(path);
      const { nodes, certificateSecret } = configurationIn(objects);
      assert.equal(certificateSecret, shared);
      const own = nodes.map((node) => `${shared}.${node.name}`);
      assert.deepEqual(
        nodes.map((node) => node.certificateSecret),
        own,
      );
      const secrets = secretsIn(objects);
      assert.deepEqual(new Set(secrets.map(({ metadata }) => metadata?.name)), new Set([shared, ...own]), name);
      // Data of a manifest would replace what graftlet has stored.
      assert.ok(secrets.every(({ data, stringData }) => !data && !stringData));
      // The machines of a fleet are not known to the chart.
      const { fleet } = parse(readFileSync(path, "utf8")) as { readonly fleet?: object };
      if (!fleet)
        assert.deepEqual(
          rulesIn(objects),
          [
            [own, ["get", "patch"]],
            [[shared], ["get"]],
          ],
          name,
        );
    }
  });

  test("with a fleet, neither RBAC nor the policy of the account's Secrets grows with the number of nodes", async () => {
    const nodes = ["a", "b", "c"].map((name) => ({ name, ssh: { host: "192.0.2.7", existingSecret: "login" } }));
    const [one, three] = await Promise.all(
      [nodes.slice(0, 1), nodes].map((some) =>
        rendered(pathOf("fleet"), "--set-json", `nodes=${JSON.stringify(some)}`),
      ),
    );
    const policyIn = (objects: readonly Rendered[] = []) =>
      JSON.stringify(objects.filter(({ metadata }) => metadata.name === "edge-graftlet.graftlet.machines"));
    assert.ok(policyIn(one).includes("startsWith('edge-graftlet-certificates.')"));
    assert.equal(policyIn(one), policyIn(three));
    assert.deepEqual(rulesIn(one ?? []), [[undefined, ["get", "list", "watch", "create", "patch"]]]);
    assert.deepEqual(rulesIn(one ?? []), rulesIn(three ?? []));
  });

  test("without rbac.create, all nodes share the one that the user's own role may name", async () => {
    const objects = await rendered(pathOf("several"), "--set=rbac.create=false");
    const { certificateSecret, nodes } = configurationIn(objects);
    assert.equal(certificateSecret, shared);
    assert.ok(nodes.every((node) => node.certificateSecret === undefined));
    assert.deepEqual(
      secretsIn(objects).map(({ metadata }) => metadata?.name),
      [shared],
    );
  });
});
