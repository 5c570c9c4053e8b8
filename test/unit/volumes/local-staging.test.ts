import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMounts } from "../../../src/host/mounts.ts";
import { otherMountsOf } from "../../../src/volumes/persistent/local-staging.ts";

const table = (...lines: readonly string[]) =>
  parseMounts(lines.map((line, index) => `${index + 20} 1 ${line} rw - ext4 /dev/x rw`).join("\n"));

test("finds other mounts of the same directory, but not of directories above or below it", () => {
  const mounts = table(
    "8:1 / /",
    "8:2 / /disks",
    "8:2 /one /root/pods/a/v",
    "8:2 /one/part /root/pods/a/part",
    "8:2 /one /elsewhere",
    "8:1 /disks/one /root/pods/b/v",
    "8:2 / /root/pods/c/v",
  );
  assert.deepEqual(otherMountsOf(mounts, "/disks/one"), ["/root/pods/a/v", "/elsewhere"]);
  assert.deepEqual(otherMountsOf(mounts, "/disks"), ["/root/pods/c/v"]);
  assert.deepEqual(otherMountsOf(table("8:1 / /", "8:1 /srv /root/pods/a/v"), "/srv"), ["/root/pods/a/v"]);
  assert.deepEqual(otherMountsOf(table("8:1 /sub /", "8:1 /sub/srv /root/pods/a/v"), "/srv"), ["/root/pods/a/v"]);
  assert.deepEqual(otherMountsOf([], "/srv"), []);
});
