import assert from "node:assert/strict";
import { test } from "node:test";
import { criLabels, dockerLabels } from "../../../../../providers/docker/container/labels.ts";
import { sandboxType, typeLabel } from "../../../../../providers/docker/container/names.ts";
import { containerNameLabel, nodeLabel } from "../../../../../src/pod/labels.ts";

const asked = { labels: { app: "web" }, annotations: { "example.com/note": "a b\nc" } };

test("labels and annotations come back as they were given, the provider's own left out", () => {
  const docker = dockerLabels(asked, "n1", { [typeLabel]: sandboxType, [containerNameLabel]: "POD" });
  assert.equal(docker["annotation.example.com/note"], "a b\nc");
  assert.equal(docker[nodeLabel], "n1");
  assert.deepEqual(criLabels(docker), asked);
});

test("the node's label comes back where it was asked for", () => {
  const labels = { ...asked.labels, [nodeLabel]: "n1" };
  assert.deepEqual(criLabels(dockerLabels({ ...asked, labels }, "n1", {})).labels, labels);
});

test("a pod cannot pass for another node's, nor for a container", () => {
  const labels = { [nodeLabel]: "n2", [typeLabel]: "container" };
  const docker = dockerLabels({ labels, annotations: {} }, "n1", { [typeLabel]: sandboxType });
  assert.deepEqual([docker[nodeLabel], docker[typeLabel]], ["n1", sandboxType]);
});

test("a container keeps its name's label, which a sandbox has from the provider", () => {
  const labels = { [containerNameLabel]: "main" };
  assert.deepEqual(
    criLabels(dockerLabels({ labels, annotations: {} }, "n1", { [typeLabel]: "container" })).labels,
    labels,
  );
});
