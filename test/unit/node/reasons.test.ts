import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { conditionReasons } from "../../../src/node/conditions.ts";

const page = readFileSync(join(import.meta.dirname, "../../../docs/troubleshooting.md"), "utf8");

/** The section of the page under the condition's heading. */
function explained(type: string): string[] {
  const section = page.split(/^## /m).find((part) => (part.split("\n")[0] ?? "").split(", ").includes(type));
  assert.ok(section, `docs/troubleshooting.md has no heading that names ${type}`);
  return [...section.matchAll(/^\| `(\w+)` +\|/gm)].map(([, reason = ""]) => reason);
}

test("docs/troubleshooting.md explains every reason of every node condition", () => {
  for (const [type, reasons] of Object.entries(conditionReasons)) {
    const rows = explained(type);
    for (const reason of reasons) assert.ok(rows.includes(reason), `${type}: ${reason} is not explained`);
  }
});

test("docs/troubleshooting.md explains only reasons that a node can have, and the cluster's own", () => {
  const known: readonly string[] = [...Object.values(conditionReasons).flat(), "NodeStatusUnknown"];
  for (const type of Object.keys(conditionReasons))
    assert.deepEqual(
      explained(type).filter((reason) => !known.includes(reason)),
      [],
    );
});
