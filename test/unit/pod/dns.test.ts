import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { PodSpec } from "../../../src/objects.ts";
import { type DnsInput, parseResolvConf, podDns } from "../../../src/pod/dns.ts";
import { aPod } from "../../fakes/pods.ts";

const host = { servers: ["192.0.2.53"], searches: ["corp.example", "svc.cluster.local"], options: ["timeout:2"] };
const cluster = { clusterDNS: ["10.96.0.10"], clusterDomain: "cluster.local" };

function resolve(spec: Partial<PodSpec>, more: Partial<DnsInput> = {}) {
  return podDns({ pod: aPod(spec, { namespace: "apps" }), host, hostIPs: ["192.0.2.1"], ...cluster, ...more });
}

describe("the DNS configuration of a pod", () => {
  const clusterSearches = ["apps.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"];
  const ofCluster = { servers: ["10.96.0.10"], searches: clusterSearches, options: ["ndots:5"] };
  const empty = { servers: [], searches: [], options: [] };
  const cases: readonly (readonly [name: string, spec: Partial<PodSpec>, more: Partial<DnsInput>, config: object])[] = [
    ["a pod's DNS is the cluster's by default", {}, {}, ofCluster],
    ["a pod's DNS is the cluster's with policy ClusterFirst", { dnsPolicy: "ClusterFirst" }, {}, ofCluster],
    ["a pod's DNS is the host's on the host network", { dnsPolicy: "ClusterFirst", hostNetwork: true }, {}, host],
    [
      "a pod's DNS is the cluster's on the host network with policy ClusterFirstWithHostNet",
      { dnsPolicy: "ClusterFirstWithHostNet", hostNetwork: true },
      {},
      ofCluster,
    ],
    ["a pod's DNS is the host's with policy Default", { dnsPolicy: "Default" }, {}, host],
    ["a pod's DNS is empty with policy None", { dnsPolicy: "None" }, {}, empty],
    [
      "a pod's DNS has only the host's search domains without a cluster domain",
      {},
      { clusterDomain: "" },
      { ...ofCluster, searches: host.searches },
    ],
    [
      "a pod's DNS is loopback if the host has no resolver",
      { dnsPolicy: "Default" },
      { host: undefined },
      { servers: ["127.0.0.1"], searches: ["."], options: [] },
    ],
    [
      "a pod's DNS is IPv6 loopback on an IPv6 node without a resolver",
      { dnsPolicy: "Default" },
      { host: undefined, hostIPs: ["2001:db8::1"] },
      { servers: ["::1"], searches: ["."], options: [] },
    ],
    [
      "a pod's dnsConfig is merged into the cluster's DNS",
      {
        dnsConfig: {
          nameservers: ["10.96.0.10", "9.9.9.9"],
          searches: ["cluster.local", "x.example"],
          options: [{ name: "ndots", value: "2" }, { name: "edns0" }],
        },
      },
      {},
      {
        servers: ["10.96.0.10", "9.9.9.9"],
        searches: [...clusterSearches, "x.example"],
        options: ["ndots:2", "edns0"],
      },
    ],
  ];
  for (const [name, spec, more, config] of cases) {
    it(name, () => {
      const dns = resolve(spec, more);
      assert.deepEqual({ ...dns.config }, config);
      assert.deepEqual(dns.warnings, []);
    });
  }
  it("without cluster DNS, a pod's DNS falls back to the host's, with a warning on pod and node", () => {
    const { config, warnings } = resolve({}, { clusterDNS: [] });
    assert.deepEqual(config.servers, host.servers);
    const text =
      'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.';
    assert.deepEqual(warnings, [
      { reason: "MissingClusterDNS", message: `pod: "p_apps(uid-1)". ${text}`, nodeMessage: text },
    ]);
  });
  it("on an isolated network, a pod's DNS falls back to the host's, with a separate warning", () => {
    for (const dnsPolicy of ["ClusterFirst", "ClusterFirstWithHostNet"] as const) {
      const { config, warnings } = resolve({ dnsPolicy }, { isolated: true });
      assert.deepEqual({ ...config }, host);
      assert.match(warnings[0]?.nodeMessage ?? "", /network of this node is isolated, .* Falling back to "Default"/);
      assert.match(warnings[0]?.message ?? "", /^pod: "p_apps\(uid-1\)"\. The pod network/);
      assert.deepEqual([warnings.length, warnings[0]?.reason], [1, "MissingClusterDNS"]);
    }
    for (const spec of [{ dnsPolicy: "Default" }, { dnsPolicy: "None" }, { hostNetwork: true }])
      assert.deepEqual(resolve(spec, { isolated: true }), resolve(spec), "no warning without the ClusterFirst policy");
  });
  it("a pod's DNS keeps at most three nameservers", () => {
    const { config, warnings } = resolve({
      dnsPolicy: "None",
      dnsConfig: { nameservers: ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"] },
    });
    assert.deepEqual(config.servers, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
    assert.deepEqual(
      warnings.map(({ message }) => message),
      [
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
      ],
    );
  });
  it("a pod's DNS keeps at most 32 search domains with 2048 characters, and drops domains that are too long", () => {
    const short = Array.from({ length: 40 }, (_, index) => `d${index}.example`);
    const counted = resolve({ dnsPolicy: "None", dnsConfig: { searches: short } });
    assert.deepEqual(counted.config.searches, short.slice(0, 32));
    assert.match(
      counted.warnings[0]?.message ?? "",
      /^Search Line limits were exceeded, some search paths have been omitted, the applied search line is: d0\.example /,
    );
    const long = Array.from({ length: 10 }, (_, index) => `${index}`.repeat(240));
    const cut = resolve({ dnsPolicy: "None", dnsConfig: { searches: long } });
    assert.deepEqual(cut.config.searches, long.slice(0, 8));
    const huge = resolve({ dnsPolicy: "None", dnsConfig: { searches: ["a".repeat(254), "b"] } });
    assert.deepEqual(huge.config.searches, ["b"]);
    assert.equal(huge.warnings.length, 1);
  });
});

describe("parsing of a resolv.conf", () => {
  it("accumulates nameservers, and takes the last search line and the last of equal options", () => {
    const text = [
      "# a comment",
      "nameserver 1.1.1.1",
      " nameserver 2.2.2.2 ",
      "search a.example",
      "search b.example. .",
      "options ndots:1 rotate",
      "options ndots:3",
      "",
    ].join("\n");
    assert.deepEqual(parseResolvConf(text), {
      servers: ["1.1.1.1", "2.2.2.2"],
      searches: ["b.example"],
      options: ["ndots:3", "rotate"],
    });
    assert.deepEqual(parseResolvConf(""), { servers: [], searches: [], options: [] });
  });
  it("a nameserver line without an address is invalid", () => {
    assert.throws(() => parseResolvConf("nameserver"), /nameserver list is empty/);
  });
});
