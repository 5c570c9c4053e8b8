import assert from "node:assert/strict";
import { test } from "node:test";
import { isolationOf } from "../../../src/node/target-conditions.ts";

const blocked = { reason: "FirewallBlocksTunnel", message: "ufw blocks it" } as const;

test("pods on the cluster network have no isolation", () => {
  assert.equal(
    isolationOf(undefined, () => blocked),
    undefined,
  );
  assert.equal(
    isolationOf({ isolated: false }, () => blocked),
    undefined,
  );
});

test("pods on the target's own network are always isolated, with the obstacle if isolation was not requested", () => {
  const reasonOf = (obstacle?: string) => isolationOf({ isolated: true, obstacle }, () => undefined)?.()?.reason;
  assert.deepEqual([reasonOf(), reasonOf("nft was missing")], ["TargetNetworkOnly", "ServiceTunnelUnavailable"]);
});

test("pods behind a service tunnel are isolated while something keeps them from it", () => {
  let obstacle: typeof blocked | undefined = blocked;
  const isolation = isolationOf({ isolated: false, tunneled: true }, () => obstacle);
  assert.deepEqual(isolation?.(), blocked);
  obstacle = undefined;
  assert.equal(isolation?.(), undefined);
});
