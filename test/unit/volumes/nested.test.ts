import assert from "node:assert/strict";
import { test } from "node:test";
import { nestedMountPoints } from "../../../src/volumes/write-content.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const nestedIn = (...mounts: readonly (readonly [name: string, mountPath: string])[]) =>
  nestedMountPoints(
    aPod({ containers: [aContainer("c", { volumeMounts: mounts.map(([name, mountPath]) => ({ name, mountPath })) })] }),
    "v",
  );

test("returns the outermost mount points inside a volume, without duplicates", () => {
  assert.deepEqual(
    nestedIn(
      ["v", "/dir"],
      ["a", "/dir/nested"],
      ["b", "/dir/nested/double"],
      ["c", "/dir/nested-vol"],
      ["d", "/dir2"],
      ["e", "/dir/x/y/"],
    ),
    ["nested", "nested-vol", "x/y"],
  );
  assert.deepEqual(nestedIn(["a", "/dir"], ["v", "/dir/nested"]), []);
  assert.deepEqual(nestedIn(["v", "/dir/"], ["v", "/dir/again"]), ["again"]);
});

test("considers the mounts of init containers, and of each container separately", () => {
  const mountsOf = (...paths: readonly (readonly [string, string])[]) =>
    paths.map(([name, mountPath]) => ({ name, mountPath }));
  const pod = aPod({
    containers: [aContainer("c", { volumeMounts: mountsOf(["v", "/data"]) })],
    initContainers: [aContainer("i", { volumeMounts: mountsOf(["v", "/in"], ["w", "/in/side"], ["w", "/data/not"]) })],
  });
  assert.deepEqual(nestedMountPoints(pod, "v"), ["side"]);
});

test("rejects a mount path outside the container's root", () => {
  assert.throws(() => nestedIn(["v", "../../etc"]), {
    code: "invalid_argument",
    message: "invalid container mount point ../../etc",
  });
});
