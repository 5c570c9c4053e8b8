import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { nodeCommand } from "../harness/agent.ts";
import { must } from "../harness/processes.ts";

const entry = join(import.meta.dirname, "hostile-way-entry.ts");
const network = 'ip link set lo up; for at in 10.96.0.1 10.96.0.10; do ip addr add $at/32 dev lo; done; exec "$@"';

interface Measured {
  /** MiB. */
  readonly grown: number;
  /** Milliseconds. */
  readonly stood: number;
  readonly waited: number;
  readonly events: readonly string[];
}

describe("a target with a hostile relay", { timeout: 120_000 }, () => {
  for (const [kind, what, events] of [
    ["lines", "endlessly prints invalid lines", ["hostile ConnectionsNotForwarded"]],
    ["datagrams", "endlessly sends datagrams to any destination", []],
    ["idle", "opens thousands of connections to a Service and leaves them idle", ["hostile ConnectionsNotForwarded"]],
    ["silent", "opens thousands of connections without naming their destinations", []],
    ["churn", "constantly opens and closes connections", []],
  ] as const)
    test(`when the relay ${what}, the process grows by at most 64 MiB, and another node's pods connect within a second`, async (t) => {
      const argv = [
        "unshare",
        "--net",
        "sh",
        "-ec",
        network,
        "sh",
        ...nodeCommand,
        "--expose-gc",
        entry,
        kind,
        `${events.length}`,
      ];
      const measured = JSON.parse(await must(argv)) as Measured;
      t.diagnostic(JSON.stringify(measured));
      assert.ok(measured.grown <= 64, `it has grown by ${measured.grown} MiB`);
      assert.ok(measured.stood < 1_000, `its event loop stood still for ${measured.stood} ms`);
      assert.ok(measured.waited < 1_000, `a connection of another node waited ${measured.waited} ms`);
      assert.deepEqual(measured.events, events);
    });
});
