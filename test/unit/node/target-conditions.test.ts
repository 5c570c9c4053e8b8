import assert from "node:assert/strict";
import { test } from "node:test";
import { isolationOf } from "../../../src/node/target-conditions.ts";

test("pods on the cluster network have no isolation", () => {
  assert.equal(
    isolationOf(undefined, () => "broken"),
    undefined,
  );
  assert.equal(
    isolationOf({ isolated: false }, () => "broken"),
    undefined,
  );
});

test("pods on the target's own network are always isolated, with the obstacle if isolation was not requested", () => {
  const reasonOf = (obstacle?: string) => isolationOf({ isolated: true, obstacle }, () => undefined)?.()?.reason;
  assert.deepEqual([reasonOf(), reasonOf("nft was missing")], ["TargetNetworkOnly", "ServiceTunnelUnavailable"]);
});

test("pods behind a service tunnel are isolated while it is unavailable", () => {
  let why: string | undefined = "nft is missing";
  const isolation = isolationOf({ isolated: false, tunneled: true }, () => why);
  assert.deepEqual(isolation?.(), { reason: "ServiceTunnelUnavailable", message: "nft is missing" });
  why = undefined;
  assert.equal(isolation?.(), undefined);
});
