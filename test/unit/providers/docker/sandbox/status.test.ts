import assert from "node:assert/strict";
import { test } from "node:test";
import { sandboxMetadata } from "../../../../../providers/docker/sandbox/sandboxes.ts";

const name = "/k8s_POD_web_default_uid-1_3";

test("parses a sandbox's metadata from its name", () => {
  assert.deepEqual(sandboxMetadata(name, {}), { name: "web", namespace: "default", uid: "uid-1", attempt: 3 });
  assert.equal(sandboxMetadata(`${name}_0a1b2c3d`, {})?.attempt, 3);
});

test("pod labels take precedence over a foreign name", () => {
  const labels = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": "uid-1",
  };
  assert.deepEqual(sandboxMetadata("/renamed", labels), {
    name: "web",
    namespace: "default",
    uid: "uid-1",
    attempt: 0,
  });
  assert.equal(sandboxMetadata("/renamed", {}), undefined);
});
