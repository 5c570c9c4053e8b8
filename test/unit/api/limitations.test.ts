import assert from "node:assert/strict";
import { test } from "node:test";
import { createLimitationReporter } from "../../../src/api/limitations.ts";

test("reports a limitation as a warning on the Node", () => {
  const events: unknown[] = [];
  const report = createLimitationReporter({ event: (...event) => void events.push(event) }, "n");
  report("UDPNotForwarded", "no socket");
  const about = { kind: "Node", apiVersion: "v1", name: "n" };
  assert.deepEqual(events, [[about, "Warning", "UDPNotForwarded", "no socket"]]);
});
