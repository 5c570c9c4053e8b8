import assert from "node:assert/strict";
import { mkdtempDisposableSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runInGuest } from "../conformance/suite-guest.ts";
import { buildSuites } from "../harness/tools.ts";
import { patience } from "../harness/wait.ts";

/** Upstream's tests that read what graftlet writes below systemd on cgroup v2: swap of a Burstable pod, and memory kept for one. */
const names = [
  "[sig-node] Swap [LinuxOnly] [Feature:NodeSwap] [Serial] [NodeConformance] with configuration QOS Burstable",
  "[sig-node] MemoryQoS [Serial] tiered protection edge cases should use memory.low for Burstable pod where memory req == limit but CPU differs",
];

test("upstream's node e2e tests pass in a guest with graftlet as a systemd unit", {
  timeout: patience(900_000),
}, async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "graftlet-guest-node-"));
  const say = (line: string): void => console.error(line);
  const outcome = await runInGuest({
    provider: "guest",
    agent: "graftlet",
    network: "routed",
    names,
    programs: await buildSuites(["e2e_node.test", "ginkgo"], say),
    folder: join(folder.path, "run"),
    ended: () => undefined,
    say,
  });
  assert.deepEqual(outcome.trouble, []);
  for (const name of names) {
    const { state, says } = outcome.tests.get(name) ?? {};
    assert.equal(state, "passed", `${name}: ${says}`);
  }
});
