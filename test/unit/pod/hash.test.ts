import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { backoffKey, containerHash } from "../../../src/pod/hash.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

describe("the hash of a container", () => {
  it("a container's hash is the same as the kubelet's", () => {
    assert.equal(containerHash({ name: "c", image: "busybox" }), "ad819b5c");
  });
  it("a container's hash depends on name and image only", () => {
    const hash = containerHash(aContainer("c"));
    assert.equal(containerHash(aContainer("c", { command: ["sh"], env: [{ name: "A", value: "1" }] })), hash);
    assert.notEqual(containerHash(aContainer("d")), hash);
    assert.notEqual(containerHash(aContainer("c", { image: "busybox:1" })), hash);
  });
  it("a container's hash has no leading zeros", () => {
    const hashes = Array.from({ length: 200 }, (_, index) => containerHash({ name: `c${index}`, image: "i" }));
    assert.ok(
      hashes.some((hash) => hash.length < 8),
      "among 200 hashes one is short",
    );
    assert.ok(hashes.every((hash) => /^[1-9a-f][0-9a-f]{0,7}$/.test(hash)));
  });
});

describe("the back-off key of a container", () => {
  it("the back-off key changes with image and resources, not with the command", () => {
    const key = (more: object) => backoffKey(aPod(), aContainer("c", more));
    assert.equal(key({ command: ["a"] }), key({ command: ["b"] }));
    assert.notEqual(key({ image: "x" }), key({}));
    assert.notEqual(key({ resources: { limits: { cpu: "1" } } }), key({}));
    assert.notEqual(backoffKey(aPod({}, { uid: "other" }), aContainer("c")), key({}));
  });
});
