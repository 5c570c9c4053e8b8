import assert from "node:assert/strict";
import { test } from "node:test";
import { overlapText } from "../../../src/service-tunnel/tunnel-limitations.ts";

const head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT";
/** A default route, the machine's network 10.244.0.0/16, and the pod network 10.88.0.0/24. */
const routes = `${head}
eth0 00000000 0100F40A 0003 0 0 0 00000000 0 0 0
eth0 0000F40A 00000000 0001 0 0 0 0000FFFF 0 0 0
cni0 0000580A 00000000 0001 0 0 0 00FFFFFF 0 0 0
`;

test("reports cluster addresses inside the pod network", () => {
  const pods = ["10.88.0.2", "10.88.0.3"];
  assert.equal(overlapText(routes, pods, ["10.96.0.1", "10.88.1.2"]), undefined);
  assert.match(overlapText(routes, pods, ["10.88.0.9"]) ?? "", /^10\.88\.0\.9 of the cluster's addresses/);
  assert.match(overlapText(routes, pods, ["10.88.0.9", "10.88.0.8"]) ?? "", /^10\.88\.0\.9 and 1 more of/);
});

test("ignores the machine's other networks, as the rules apply before its routes", () => {
  assert.equal(overlapText(routes, ["10.88.0.2"], ["10.244.0.5"]), undefined);
});

test("treats a pod's own address as local even if the cluster uses it, too", () => {
  assert.equal(overlapText(routes, ["10.88.0.2"], ["10.88.0.2"]), undefined);
});

test("reports nothing without pods, or if each pod has its own route", () => {
  assert.equal(overlapText(routes, [], ["10.88.0.9"]), undefined);
  const single = `${head}\nveth1 0200580A 00000000 0005 0 0 0 FFFFFFFF 0 0 0\n`;
  assert.equal(overlapText(single, ["10.88.0.2"], ["10.88.0.9"]), undefined);
});
