import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { defaultPullPolicy, parseImageName, withDefaultTag } from "../../../src/pod/image-name.ts";

const hex = "0123456789abcdef".repeat(4);
const digest = `sha256:${hex}`;

describe("parsing of image names", () => {
  const good: readonly (readonly [image: string, repository: string, tag: string, digest: string])[] = [
    ["busybox", "docker.io/library/busybox", "latest", ""],
    ["busybox:1.36", "docker.io/library/busybox", "1.36", ""],
    ["bitnami/redis", "docker.io/bitnami/redis", "latest", ""],
    ["docker.io/busybox", "docker.io/library/busybox", "latest", ""],
    ["index.docker.io/busybox", "docker.io/library/busybox", "latest", ""],
    ["registry.example.com:5000/a/b/c:v1", "registry.example.com:5000/a/b/c", "v1", ""],
    ["localhost/x", "localhost/x", "latest", ""],
    ["[fd00::1]:5000/x", "[fd00::1]:5000/x", "latest", ""],
    [`busybox@${digest}`, "docker.io/library/busybox", "", digest],
    [`busybox:1@${digest}`, "docker.io/library/busybox", "1", digest],
    ["a_b/c--d/e.f", "docker.io/a_b/c--d/e.f", "latest", ""],
    ["UPPER/x", "UPPER/x", "latest", ""],
  ];
  for (const [image, ...parts] of good) {
    it(`parses the image name ${image}`, () => {
      const { repository, tag, digest: found } = parseImageName(image);
      assert.deepEqual([repository, tag, found], parts);
    });
  }
  const bad: readonly (readonly [image: string, why: string])[] = [
    ["", "invalid reference format"],
    ["a b", "invalid reference format"],
    ["busybox:", "invalid reference format"],
    ["busybox:-x", "invalid reference format"],
    ["-busybox", "invalid reference format"],
    ["a//b", "invalid reference format"],
    ["busybox@sha256:abc", "invalid reference format"],
    ["busybox@", "invalid reference format"],
    [`busybox@sha256:${"0".repeat(40)}`, "invalid checksum digest length"],
    [`busybox@md5:${"0".repeat(32)}`, "unsupported digest algorithm"],
    ["Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase"],
    [hex, `invalid repository name (${hex}), cannot specify 64-byte hexadecimal strings`],
    ["a".repeat(300), "repository name must not be more than 255 characters"],
    [`${"a-".repeat(100_000)}.x/y`, "invalid reference format"],
  ];
  for (const [image, why] of bad) {
    it(`rejects the image name "${image.slice(0, 40)}"`, () => {
      assert.throws(() => parseImageName(image), {
        message: `couldn't parse image name ${JSON.stringify(image)}: ${why}`,
      });
    });
  }
  it("image names get a tag only if they have neither tag nor digest, and keep their registry as written", () => {
    assert.equal(withDefaultTag("busybox"), "busybox:latest");
    assert.equal(withDefaultTag("host:5000/x"), "host:5000/x:latest");
    assert.equal(withDefaultTag("busybox:latest"), "busybox:latest");
    assert.equal(withDefaultTag("busybox:1"), "busybox:1");
    assert.equal(withDefaultTag(`busybox@${digest}`), `busybox@${digest}`);
  });
  it("image names determine the default pull policy", () => {
    assert.equal(defaultPullPolicy("busybox"), "Always");
    assert.equal(defaultPullPolicy("busybox:latest"), "Always");
    assert.equal(defaultPullPolicy("busybox:1"), "IfNotPresent");
    assert.equal(defaultPullPolicy(`busybox@${digest}`), "IfNotPresent");
  });
});
