import assert from "node:assert/strict";
import { test } from "node:test";
import { qualifiedImageName, imageRefOf, isImageId } from "../../../../../providers/docker/image/reference.ts";

const id = `sha256:${"a".repeat(64)}`;
const digest = `sha256:${"b".repeat(64)}`;

test("the image reference is the digest in the requested repository, otherwise in any repository, otherwise the image ID", () => {
  const RepoDigests = [`one.example/a@${digest}`, `busybox@${digest}`];
  assert.equal(imageRefOf({ Id: id, RepoDigests }, "busybox:1.37"), `docker.io/library/busybox@${digest}`);
  assert.equal(imageRefOf({ Id: id, RepoDigests }, `one.example/a@${digest}`), `one.example/a@${digest}`);
  assert.equal(imageRefOf({ Id: id, RepoDigests }, "two.example/a:1"), `one.example/a@${digest}`);
  assert.equal(imageRefOf({ Id: id, RepoDigests }, id), `one.example/a@${digest}`);
  assert.equal(imageRefOf({ Id: id, RepoDigests: ["<none>@<none>"] }, "two.example/a:1"), id);
  assert.equal(imageRefOf({ Id: id, RepoDigests: null }), id);
});

test("names are completed; IDs and invalid names are unchanged", () => {
  assert.equal(qualifiedImageName("busybox:1.37"), "docker.io/library/busybox:1.37");
  assert.equal(qualifiedImageName(`user/app@${digest}`), `docker.io/user/app@${digest}`);
  assert.equal(qualifiedImageName("registry.example:5000/a/b:c"), "registry.example:5000/a/b:c");
  assert.equal(qualifiedImageName(id), id);
  assert.equal(qualifiedImageName("<none>:<none>"), "<none>:<none>");
});

test("distinguishes an ID from a name", () => {
  assert.ok(isImageId(id));
  assert.ok(isImageId("a".repeat(64)));
  assert.ok(!isImageId("a".repeat(63)));
  assert.ok(!isImageId(`busybox@${digest}`));
});
