import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { graftletVersion } from "../../../src/version.ts";

test("graftlet's version is the one in package.json", () => {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  assert.deepEqual((manifest as { version: unknown }).version, graftletVersion);
});
