import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Protocol } from "../../../src/gen/cri.ts";
import { cgroupBelow, podCgroup, qosCgroup } from "../../../src/pod/cgroup-path.ts";
import { kernelHostname, podHostname, hostNetworkHostsFile, podHostsFile } from "../../../src/pod/hostname.ts";
import { containerLogLink, containerLogPath, podLogDirectory } from "../../../src/pod/log-paths.ts";
import { portMappings } from "../../../src/runtime/sandbox-config.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

describe("hostname of a pod", () => {
  it("a pod's hostname is the pod's name, or the spec's hostname, with a domain if it has a subdomain", () => {
    assert.deepEqual(podHostname(aPod(), "cluster.local"), { hostname: "p", domain: "" });
    assert.deepEqual(podHostname(aPod({ hostname: "h", subdomain: "s" }), "cluster.local"), {
      hostname: "h",
      domain: "s.default.svc.cluster.local",
    });
    assert.deepEqual(
      podHostname(aPod({ hostname: "h", subdomain: "s", hostnameOverride: "o.example" }), "cluster.local"),
      { hostname: "o.example", domain: "" },
    );
  });
  it("a pod's hostname is truncated to 63 characters without a trailing separator", () => {
    assert.equal(podHostname(aPod({}, { name: "a".repeat(70) }), "").hostname, "a".repeat(63));
    assert.equal(podHostname(aPod({}, { name: `${"a".repeat(61)}-.b` }), "").hostname, "a".repeat(61));
  });
  it("with hostNetwork, a pod's hostname is the host's, regardless of the spec", () => {
    const asked = { hostNetwork: true, setHostnameAsFQDN: true, hostname: "h".repeat(60), subdomain: "s".repeat(60) };
    const pod = aPod(asked);
    assert.equal(kernelHostname(pod, podHostname(pod, "cluster.local")), "");
  });
  it("a pod's hostname is fully qualified only if setHostnameAsFQDN is set and the name fits", () => {
    const named = { hostname: "h", domain: "s.default.svc.cluster.local" };
    assert.equal(kernelHostname(aPod(), named), "h");
    assert.equal(kernelHostname(aPod({ setHostnameAsFQDN: true }), named), "h.s.default.svc.cluster.local");
    assert.equal(kernelHostname(aPod({ setHostnameAsFQDN: true }), { hostname: "h", domain: "" }), "h");
    const domain = "d".repeat(63);
    assert.throws(() => kernelHostname(aPod({ setHostnameAsFQDN: true }), { hostname: "h", domain }), {
      message: `failed to construct FQDN from pod hostname and cluster domain, FQDN h.${domain} is too long (64 characters is the max, 65 characters requested)`,
    });
  });
});

describe("content of a pod's hosts file", () => {
  const fixed =
    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
  const hostAliases = [{ ip: "1.2.3.4", hostnames: ["a", "b"] }];
  it("the hosts file has an entry for each pod IP", () => {
    assert.equal(
      podHostsFile(aPod(), ["10.0.0.2", "fd00::2"], { hostname: "p", domain: "" }),
      `${fixed}10.0.0.2\tp\nfd00::2\tp\n`,
    );
    assert.equal(
      podHostsFile(aPod(), ["10.0.0.2"], { hostname: "p", domain: "s.ns.svc.x" }),
      `${fixed}10.0.0.2\tp.s.ns.svc.x\tp\n`,
    );
  });
  it("the hosts file ends with the host aliases", () => {
    const tail = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n";
    assert.equal(
      podHostsFile(aPod({ hostAliases }), ["10.0.0.2"], { hostname: "p", domain: "" }),
      `${fixed}10.0.0.2\tp\n${tail}`,
    );
    assert.equal(
      hostNetworkHostsFile(aPod({ hostAliases }), "127.0.0.1 host\n"),
      `# Kubernetes-managed hosts file (host network).\n127.0.0.1 host\n${tail}`,
    );
    assert.equal(
      hostNetworkHostsFile(aPod(), "127.0.0.1 host\n"),
      "# Kubernetes-managed hosts file (host network).\n127.0.0.1 host\n",
    );
  });
});

describe("paths of container logs", () => {
  it("log paths are the kubelet's", () => {
    assert.equal(podLogDirectory("/var/log/pods", aPod()), "/var/log/pods/default_p_uid-1");
    assert.equal(containerLogPath("c", 3), "c/3.log");
    assert.equal(
      containerLogLink("/var/log/containers", aPod(), "c", "abc"),
      "/var/log/containers/p_default_c-abc.log",
    );
  });
  it("log paths are truncated to the maximum file name length", () => {
    const link = containerLogLink("/l", aPod({}, { name: "n".repeat(253) }), "c", "abc");
    assert.equal(link.length, "/l/".length + 255);
    assert.ok(link.endsWith(".log"));
  });
});

describe("cgroup path of a pod", () => {
  const cases: readonly (readonly [
    driver: "cgroupfs" | "systemd",
    root: string,
    qos: "Guaranteed" | "Burstable" | "BestEffort",
    path: string,
  ])[] = [
    ["cgroupfs", "", "Guaranteed", "/kubepods/poda-b"],
    ["cgroupfs", "/", "Burstable", "/kubepods/burstable/poda-b"],
    ["cgroupfs", "/mine/one", "BestEffort", "/mine/one/kubepods/besteffort/poda-b"],
    ["systemd", "", "Guaranteed", "/kubepods.slice/kubepods-poda_b.slice"],
    ["systemd", "", "Burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"],
    [
      "systemd",
      "/my-node",
      "BestEffort",
      "/my_node.slice/my_node-kubepods.slice/my_node-kubepods-besteffort.slice/my_node-kubepods-besteffort-poda_b.slice",
    ],
  ];
  for (const [driver, root, qos, path] of cases) {
    it(`a ${qos} pod has the kubelet's ${driver} cgroup in ${root || "/"}`, () =>
      assert.equal(podCgroup("a-b", qos, { driver, root, perQos: true }), path));
    it(`a ${qos} pod has the ${driver} cgroup below that of its QoS class in ${root || "/"}`, () =>
      assert.equal(cgroupBelow(qosCgroup(qos, { driver, root, perQos: true }), "poda-b", driver), path));
  }
  it("without QoS cgroups, the choice of a pod's cgroup is left to the runtime", () => {
    assert.equal(podCgroup("a-b", "Burstable", { driver: "cgroupfs", root: "", perQos: false }), "");
  });
});

describe("port mappings of a sandbox", () => {
  it("port mappings come from main containers only, without duplicates", () => {
    const web = aContainer("web", {
      ports: [
        { containerPort: 80, hostPort: 8080, protocol: "TCP", name: "http" },
        { containerPort: 81, protocol: "TCP", name: "http" },
        { containerPort: 53, protocol: "UDP", hostIP: "127.0.0.1", hostPort: 53 },
        { containerPort: 53, protocol: "UDP", hostIP: "127.0.0.1", hostPort: 53 },
        { containerPort: 53, protocol: "UDP", hostIP: "::1", hostPort: 53 },
        { containerPort: 99, protocol: "SCTP" },
      ],
    });
    const init = aContainer("init", { ports: [{ containerPort: 1, hostPort: 1 }] });
    assert.deepEqual(portMappings(aPod({ containers: [web], initContainers: [init] })), [
      { protocol: Protocol.TCP, containerPort: 80, hostPort: 8080, hostIp: "" },
      { protocol: Protocol.UDP, containerPort: 53, hostPort: 53, hostIp: "127.0.0.1" },
      { protocol: Protocol.UDP, containerPort: 53, hostPort: 53, hostIp: "::1" },
      { protocol: Protocol.SCTP, containerPort: 99, hostPort: 0, hostIp: "" },
    ]);
  });
});
