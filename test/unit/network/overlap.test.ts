import assert from "node:assert/strict";
import { test } from "node:test";
import { overlapOf } from "../../../src/network/overlap.ts";

const head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT";
/** A default route, a network of the machine 10.244.0.0/16, and the pods' 10.88.0.0/24. */
const routes = `${head}
eth0 00000000 0100F40A 0003 0 0 0 00000000 0 0 0
eth0 0000F40A 00000000 0001 0 0 0 0000FFFF 0 0 0
cni0 0000580A 00000000 0001 0 0 0 00FFFFFF 0 0 0
`;

test("addresses of the cluster in the network of the pods themselves overlap", () => {
  const pods = ["10.88.0.2", "10.88.0.3"];
  assert.equal(overlapOf(routes, pods, ["10.96.0.1", "10.88.1.2"]), undefined);
  assert.match(overlapOf(routes, pods, ["10.88.0.9"]) ?? "", /^10\.88\.0\.9 of the cluster's addresses/);
  assert.match(overlapOf(routes, pods, ["10.88.0.9", "10.88.0.8"]) ?? "", /^10\.88\.0\.9 and 1 more of/);
});

test("what the machine itself has for neighbours does not matter: packets of pods meet the rules before its routes", () => {
  assert.equal(overlapOf(routes, ["10.88.0.2"], ["10.244.0.5"]), undefined);
});

test("a pod's own address is this node's, whoever else has it in the cluster", () => {
  assert.equal(overlapOf(routes, ["10.88.0.2"], ["10.88.0.2"]), undefined);
});

test("without pods, or with a route to each pod alone, nothing overlaps", () => {
  assert.equal(overlapOf(routes, [], ["10.88.0.9"]), undefined);
  const single = `${head}\nveth1 0200580A 00000000 0005 0 0 0 FFFFFFFF 0 0 0\n`;
  assert.equal(overlapOf(single, ["10.88.0.2"], ["10.88.0.9"]), undefined);
});
