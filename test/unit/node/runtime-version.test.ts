import assert from "node:assert/strict";
import { test } from "node:test";
import { formatRuntimeVersion } from "../../../src/node/target-status.ts";

const shown: Readonly<Record<string, string>> = {
  "2.1.4": "2.1.4",
  "v2.1.4": "2.1.4",
  " v2.1.4 ": "2.1.4",
  "v2.1.0-rc.1": "2.1.0-rc.1",
  "20.10.24+dfsg1": "20.10.24+dfsg1",
  "1.34.0-dev+f1.2": "1.34.0-dev+f1.2",
  "1.6.20~ds1": "1.6.20",
  "2.0.0-rc.01": "2.0.0",
  "24.04.1": "24.4.1",
  "1.7": "1.7",
  "1": "Unknown",
  "01.2.3": "Unknown",
  devel: "Unknown",
  "": "Unknown",
};

test("formats a runtime's version as the kubelet does", () => {
  assert.deepEqual(Object.fromEntries(Object.keys(shown).map((told) => [told, formatRuntimeVersion(told)])), shown);
});
