import assert from "node:assert/strict";
import { test } from "node:test";
import { ipv4SubnetIn, ipv4Subnet } from "../../../../../providers/docker/network/pod-network.ts";

test("normalizes a subnet to its first address", () => {
  assert.equal(ipv4Subnet("10.88.0.7/24"), "10.88.0.0/24");
  assert.equal(ipv4Subnet("10.88.203.7/18"), "10.88.192.0/18");
  assert.equal(ipv4Subnet("255.255.255.255/8"), "255.0.0.0/8");
  assert.equal(ipv4Subnet("1.2.3.4/32"), "1.2.3.4/32");
});

test("rejects text that is not an IPv4 subnet", () => {
  for (const text of ["", "10.88.0.0", "10.88.0.0/33", "10.88.0.256/24", "fd00::/64", "a.b.c.d/8"])
    assert.equal(ipv4Subnet(text), undefined, text);
});

test("uses the IPv4 subnet of a node's pod CIDRs", () => {
  assert.equal(ipv4SubnetIn("fd00:10:244::/64,10.244.1.0/24"), "10.244.1.0/24");
  assert.equal(ipv4SubnetIn("fd00:10:244::/64"), undefined);
  assert.equal(ipv4SubnetIn(""), undefined);
});
