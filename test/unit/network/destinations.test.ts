import assert from "node:assert/strict";
import { test } from "node:test";
import { destinationOf, destinationsOf, headlessDestinations } from "../../../src/network/destinations.ts";
import type { EndpointSlice } from "../../../src/objects.ts";

test("destinations are the ports of Services' IPv4 addresses, by protocol", () => {
  const found = destinationsOf([
    { spec: { clusterIPs: ["10.96.0.10", "fd00::10"], ports: [{ port: 53, protocol: "UDP" }, { port: 53 }] } },
    { spec: { clusterIP: "10.96.0.1", ports: [{ port: 443, protocol: "TCP" }] } },
    { spec: { clusterIP: "10.96.0.9", ports: [{ port: 9, protocol: "SCTP" }] } },
    { spec: { clusterIP: "None", ports: [{ port: 80 }] } },
    { spec: { type: "ExternalName", externalName: "example.org" } },
    { spec: { clusterIPs: ["fd00::11"], ports: [{ port: 80 }] } },
    {},
  ]);
  assert.deepEqual(found, {
    tcp: ["10.96.0.10:53", "10.96.0.1:443"],
    udp: ["10.96.0.10:53"],
    addresses: ["10.96.0.1", "10.96.0.10", "10.96.0.9"],
  });
});

test("endpoints of headless Services are destinations of connections, but for those on the node itself", () => {
  const slice = (more: object) =>
    ({
      metadata: { name: "s", namespace: "default", uid: "u" },
      addressType: "IPv4",
      endpoints: [
        { addresses: ["10.244.1.2"], nodeName: "node-1" },
        { addresses: ["10.244.9.9"], nodeName: "edge-1" },
      ],
      ports: [{ port: 5432 }, { port: 53, protocol: "UDP" }, {}],
      ...more,
    }) as EndpointSlice;
  assert.deepEqual(headlessDestinations([slice({}), slice({ addressType: "IPv6" }), slice({ ports: [] })], "edge-1"), [
    "10.244.1.2:5432",
  ]);
});

test("an address and a port, and nothing else", () => {
  assert.deepEqual(destinationOf("10.96.0.1:443"), { host: "10.96.0.1", port: 443 });
  for (const text of ["", ":80", "10.96.0.1", "10.96.0.1:", "10.96.0.1:0", "10.96.0.1:65536", "web:80", "::1:80"])
    assert.equal(destinationOf(text), undefined, text);
});
