import assert from "node:assert/strict";
import { test } from "node:test";
import { criLabels, dockerLabels } from "../../../../../providers/docker/container/labels.ts";
import { sandboxType, typeLabel } from "../../../../../providers/docker/container/names.ts";
import { containerNameLabel, nodeLabel } from "../../../../../src/pod/labels.ts";

const asked = { labels: { app: "web" }, annotations: { "example.com/note": "a b\nc" } };

test("labels and annotations round-trip; the provider's own are omitted", () => {
  const docker = dockerLabels(asked, "n1", { [typeLabel]: sandboxType, [containerNameLabel]: "POD" });
  assert.equal(docker["annotation.example.com/note"], "a b\nc");
  assert.equal(docker[nodeLabel], "n1");
  assert.deepEqual(criLabels(docker), asked);
});

test("returns the node label if it was requested", () => {
  const labels = { ...asked.labels, [nodeLabel]: "n1" };
  assert.deepEqual(criLabels(dockerLabels({ ...asked, labels }, "n1", {})).labels, labels);
});

test("a pod cannot pose as another node's pod, nor as a container", () => {
  const labels = { [nodeLabel]: "n2", [typeLabel]: "container" };
  const docker = dockerLabels({ labels, annotations: {} }, "n1", { [typeLabel]: sandboxType });
  assert.deepEqual([docker[nodeLabel], docker[typeLabel]], ["n1", sandboxType]);
});

test("returns a container's requested name label, but not a sandbox's own", () => {
  const labels = { [containerNameLabel]: "main" };
  assert.deepEqual(
    criLabels(dockerLabels({ labels, annotations: {} }, "n1", { [typeLabel]: "container" })).labels,
    labels,
  );
});
