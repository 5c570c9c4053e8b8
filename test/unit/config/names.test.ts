import assert from "node:assert/strict";
import { test } from "node:test";
import { isLabelValue, isNodeLabel, isQualifiedName, isSubdomain, nearest } from "../../../src/config/names.ts";

test("validates names as Kubernetes does", () => {
  assert.ok(isSubdomain("node-1.example"));
  assert.ok(!isSubdomain("Node"));
  assert.ok(!isSubdomain("a..b"));
  assert.ok(!isSubdomain("a".repeat(254)));
  assert.ok(isQualifiedName("example.org/My_key"));
  assert.ok(!isQualifiedName("a/b/c"));
  assert.ok(!isQualifiedName(`x${"y".repeat(63)}`));
  assert.ok(isLabelValue(""));
  assert.ok(!isLabelValue("-a"));
});

test("allows a node only a few of the labels reserved for Kubernetes", () => {
  assert.ok(isNodeLabel("example.org/role"));
  assert.ok(isNodeLabel("plain"));
  assert.ok(isNodeLabel("topology.kubernetes.io/zone"));
  assert.ok(isNodeLabel("x.node.kubernetes.io/y"));
  assert.ok(!isNodeLabel("node-role.kubernetes.io/worker"));
  assert.ok(!isNodeLabel("k8s.io/x"));
  assert.ok(isNodeLabel("notkubernetes.io/x"));
});

test("suggests the most similar name, or none if all differ too much", () => {
  const names = ["port", "address", "node-ip", "max-pods"];
  assert.equal(nearest("prot", names), "port");
  assert.equal(nearest("adress", names), "address");
  assert.equal(nearest("maxpods", names), "max-pods");
  assert.equal(nearest("zzzz", names), undefined);
});
