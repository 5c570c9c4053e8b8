import assert from "node:assert/strict";
import { test } from "node:test";
import { createTunnelGate, type Protocol } from "../../../src/service-tunnel/gate.ts";

function aGate() {
  const gate = createTunnelGate();
  gate.allow({
    pods: ["10.88.0.2"],
    tcp: ["10.96.0.1:443", "127.0.0.1:80", "169.254.169.254:80", "224.0.0.1:80", "0.0.0.0:80", "255.255.255.255:80"],
    udp: ["10.96.0.10:53", "127.0.0.1:53"],
  });
  return gate;
}

test("admits traffic from a pod to an allowed destination of the same protocol", () => {
  const gate = aGate();
  assert.deepEqual(gate.admit("tcp", "10.88.0.2:4000", "10.96.0.1:443"), {
    pod: "10.88.0.2",
    to: { host: "10.96.0.1", port: 443 },
  });
  assert.ok(gate.admit("udp", "10.88.0.2:4000", "10.96.0.10:53"));
});

for (const [why, protocol, from, to] of [
  ["TCP to a destination that allows only UDP", "tcp", "10.88.0.2:4000", "10.96.0.10:53"],
  ["UDP to a destination that allows only TCP", "udp", "10.88.0.2:4000", "10.96.0.1:443"],
  ["another pod", "tcp", "10.88.0.3:4000", "10.96.0.1:443"],
  ["another pod's datagrams", "udp", "10.88.0.3:4000", "10.96.0.10:53"],
  ["a pod's address without a port", "tcp", "10.88.0.2", "10.96.0.1:443"],
  ["a pod's port in hexadecimal", "udp", "10.88.0.2:0x35", "10.96.0.10:53"],
  ["a pod's port with leading zeros", "udp", `10.88.0.2:${"0".repeat(1000)}53`, "10.96.0.10:53"],
  ["graftlet's loopback over TCP, even if it is a Service's address", "tcp", "10.88.0.2:4000", "127.0.0.1:80"],
  ["graftlet's loopback over UDP, even if it is a Service's address", "udp", "10.88.0.2:4000", "127.0.0.1:53"],
  ["a link-local address", "tcp", "10.88.0.2:4000", "169.254.169.254:80"],
  ["a multicast address", "tcp", "10.88.0.2:4000", "224.0.0.1:80"],
  ["the unspecified address", "tcp", "10.88.0.2:4000", "0.0.0.0:80"],
  ["the broadcast address", "tcp", "10.88.0.2:4000", "255.255.255.255:80"],
] satisfies readonly (readonly [string, Protocol, string, string])[])
  test(`refuses ${why}`, () => assert.equal(aGate().admit(protocol, from, to), undefined));

test("admits nothing before destinations are set, and nothing to a destination that was removed", () => {
  assert.equal(createTunnelGate().admit("tcp", "10.88.0.2:4000", "10.96.0.1:443"), undefined);
  const gate = aGate();
  gate.allow({ pods: ["10.88.0.2"], tcp: [], udp: [] });
  assert.equal(gate.admit("tcp", "10.88.0.2:4000", "10.96.0.1:443"), undefined);
});
