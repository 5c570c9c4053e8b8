import assert from "node:assert/strict";
import { test } from "node:test";
import { highestVersion, isLess, formatVersion } from "../../../src/csi/driver-registry.ts";

test("selects the highest v1 version", () => {
  for (const [versions, highest] of [
    [["1.0.0"], "1.0.0"],
    [["0.3.0", "1.2.0", "1.10"], "1.10"],
    [["2.0.0", "1.1.0", "nonsense"], "1.1.0"],
    [[" v1.5.0-rc.1"], "1.5.0"],
  ] as const)
    assert.equal(formatVersion(highestVersion(versions)), highest);
});

test("without a v1 version, fails with the kubelet's message", () => {
  for (const [versions, why] of [
    [["0.3.0"], "highest supported version reported is 0.3.0, must be v1.x"],
    [["2.0.0"], "could not find a highest supported version from versions ([2.0.0]) reported: <nil>"],
    [["x"], 'could not find a highest supported version from versions ([x]) reported: could not parse "x" as version'],
    [["1"], 'could not find a highest supported version from versions ([1]) reported: illegal version string "1"'],
    [
      ["01.2"],
      'could not find a highest supported version from versions ([01.2]) reported: illegal zero-prefixed version component "01" in "01.2"',
    ],
  ] as const)
    assert.throws(() => highestVersion(versions), { message: why });
});

test("compares versions by their components", () => {
  assert.ok(isLess([1, 9], [1, 10]));
  assert.ok(isLess([1], [1, 0, 1]));
  assert.ok(!isLess([1, 0], [1]));
  assert.ok(!isLess([1, 2], [1, 1, 9]));
});
