import assert from "node:assert/strict";
import { test } from "node:test";
import {
  parseDestination,
  destinationsOf,
  headlessDestinations,
  serviceFilter,
} from "../../../src/service-tunnel/destinations.ts";
import type { EndpointSlice } from "../../../src/objects.ts";

test("returns the ports of Services' IPv4 addresses by protocol", () => {
  const metadata = { namespace: "n", name: "s", uid: "u" };
  const found = destinationsOf([
    {
      metadata,
      spec: { clusterIPs: ["10.96.0.10", "fd00::10"], ports: [{ port: 53, protocol: "UDP" }, { port: 53 }] },
    },
    { metadata, spec: { clusterIP: "10.96.0.1", ports: [{ port: 443, protocol: "TCP" }] } },
    { metadata, spec: { clusterIP: "10.96.0.9", ports: [{ port: 9, protocol: "SCTP" }] } },
    { metadata, spec: { clusterIP: "None", ports: [{ port: 80 }] } },
    { metadata, spec: { type: "ExternalName", externalName: "example.org" } },
    { metadata, spec: { clusterIPs: ["fd00::11"], ports: [{ port: 80 }] } },
    { metadata },
  ]);
  assert.deepEqual(found, {
    tcp: ["10.96.0.10:53", "10.96.0.1:443"],
    udp: ["10.96.0.10:53"],
    addresses: ["10.96.0.1", "10.96.0.10", "10.96.0.9"],
    addressesIPv6: ["fd00::10", "fd00::11"],
  });
});

test("sorts UDP destinations of Services with few ports first", () => {
  const service = (clusterIP: string, ports: number) => ({
    metadata: { namespace: "n", name: clusterIP, uid: "u" },
    spec: { clusterIP, ports: Array.from({ length: ports }, (_, port) => ({ port: port + 1, protocol: "UDP" })) },
  });
  const { udp } = destinationsOf([service("10.96.0.1", 500), service("10.96.0.9", 1), service("10.96.0.2", 1)]);
  assert.equal(udp.length, 502);
  assert.deepEqual(udp.slice(0, 3), ["10.96.0.2:1", "10.96.0.9:1", "10.96.0.1:1"]);
});

test("excludes ports of Services in other namespaces, except the API server and DNS, but keeps the Services' addresses", () => {
  const service = (namespace: string, name: string, clusterIP: string) => ({
    metadata: { namespace, name, uid: name },
    spec: { clusterIPs: [clusterIP], ports: [{ port: 80 }] },
  });
  const withoutAddress = (one: ReturnType<typeof service>) => ({ ...one, spec: { ...one.spec, clusterIP: "None" } });
  const services = [
    service("shop", "web", "10.96.0.20"),
    service("stock", "db", "10.96.0.21"),
    service("default", "kubernetes", "10.96.0.1"),
    service("kube-system", "kube-dns", "10.96.0.10"),
    service("dns", "own", "10.96.0.11"),
  ];
  const { tcp, addresses } = destinationsOf(services, serviceFilter(["shop"], ["10.96.0.11"]));
  assert.deepEqual(tcp, ["10.96.0.10:80", "10.96.0.11:80", "10.96.0.1:80", "10.96.0.20:80"].toSorted());
  assert.equal(addresses.length, 5);
  assert.equal(destinationsOf(services, serviceFilter(undefined, [])).tcp.length, 5);
  const slice = (namespace: string, address: string) =>
    ({
      metadata: { name: "s", namespace, uid: "u", labels: { "kubernetes.io/service-name": "db" } },
      addressType: "IPv4",
      endpoints: [{ addresses: [address] }],
      ports: [{ port: 1 }],
    }) as EndpointSlice;
  const slices = [slice("shop", "10.244.0.1"), slice("stock", "10.244.0.2")];
  const headless = ["shop", "stock"].map((namespace) => service(namespace, "db", "None")).map(withoutAddress);
  assert.deepEqual(headlessDestinations(slices, headless, "n", serviceFilter(["shop"], [])), ["10.244.0.1:1"]);
});

test("returns TCP endpoints of headless Services, except those on the node itself", () => {
  const slice = (more: object) =>
    ({
      metadata: { name: "s", namespace: "default", uid: "u", labels: { "kubernetes.io/service-name": "db" } },
      addressType: "IPv4",
      endpoints: [
        { addresses: ["10.244.1.2"], nodeName: "node-1" },
        { addresses: ["10.244.9.9"], nodeName: "edge-1" },
      ],
      ports: [{ port: 5432 }, { port: 53, protocol: "UDP" }, {}],
      ...more,
    }) as EndpointSlice;
  const db = (namespace: string, clusterIP: string) => ({
    metadata: { name: "db", namespace, uid: "s" },
    spec: { clusterIP, clusterIPs: [clusterIP], ports: [{ port: 5432 }] },
  });
  const slices = [slice({}), slice({ addressType: "IPv6" }), slice({ ports: [] })];
  assert.deepEqual(headlessDestinations(slices, [db("default", "None")], "edge-1"), ["10.244.1.2:5432"]);
  for (const others of [[], [db("default", "10.96.0.3")], [db("other", "None")]])
    assert.deepEqual(headlessDestinations(slices, others, "edge-1"), [], "whatever the labels of slices say");
});

test("parses only a canonical address and port", () => {
  assert.deepEqual(parseDestination("10.96.0.1:443"), { host: "10.96.0.1", port: 443 });
  for (const text of ["", ":80", "10.96.0.1", "10.96.0.1:", "10.96.0.1:0", "10.96.0.1:65536", "web:80", "::1:80"])
    assert.equal(parseDestination(text), undefined, text);
});
