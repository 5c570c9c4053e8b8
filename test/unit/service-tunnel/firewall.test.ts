import assert from "node:assert/strict";
import { test } from "node:test";
import type { Service } from "../../../src/objects.ts";
import { blockedProtocols, probeDestinations } from "../../../src/service-tunnel/firewall-probe.ts";
import { activeFirewalls, firewallText, podInterface } from "../../../src/service-tunnel/firewall-remedy.ts";
import { createFirewallWatch } from "../../../src/service-tunnel/firewall-watch.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const header = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT";
/** A line of /proc/net/route for 10.88.0.0/16, or another destination and mask. */
const route = (name: string, mask = "0000FFFF", destination = "0000580A") =>
  `${name} ${destination} 00000000 0001 0 0 0 ${mask} 0 0 0`;
const routesOf = (...lines: string[]) => [header, ...lines, ""].join("\n");

test("a protocol is blocked only if the tunnel's rules counted what failed", () => {
  assert.deepEqual(blockedProtocols("tcp open\nudp open\ntcp arrived\nudp arrived\n"), []);
  assert.deepEqual(blockedProtocols("tcp open\n"), [], "without UDP destinations");
  assert.deepEqual(blockedProtocols("tcp blocked\nudp blocked\ntcp arrived\nudp arrived\n"), ["tcp", "udp"]);
  assert.deepEqual(blockedProtocols("tcp open\nudp blocked\ntcp arrived\nudp arrived\n"), ["udp"]);
  assert.equal(blockedProtocols("tcp open\nudp blocked\ntcp arrived\n"), undefined);
  for (const none of ["", "blocked", "tcp blocked\n", "sh: 1: nsenter: not found\n"])
    assert.equal(blockedProtocols(none), undefined, none);
});

test("probes the cluster's DNS, else the API server, but no other Service by TCP", () => {
  const kubernetes: Service = {
    metadata: { name: "kubernetes", namespace: "default" } as Service["metadata"],
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 443 }] },
  };
  const tcp = ["10.96.0.10:53", "10.96.0.1:443", "10.96.0.7:25"];
  const dns = ["10.96.0.10:53", 1022] as const;
  assert.deepEqual(probeDestinations({ tcp, udp: [["10.96.0.7:99", 1021], dns] }, [kubernetes]), {
    tcp: "10.96.0.10:53",
    udp: "10.96.0.10:53",
  });
  assert.deepEqual(probeDestinations({ tcp: tcp.slice(1), udp: [dns] }, [kubernetes]), {
    tcp: "10.96.0.1:443",
    udp: "10.96.0.10:53",
  });
  assert.deepEqual(probeDestinations({ tcp, udp: [] }, [kubernetes]), { tcp: "10.96.0.1:443", udp: undefined });
  assert.equal(probeDestinations({ tcp, udp: [] }, []), undefined);
});

test("finds the interface of all pods, unless each pod has its own, or the name is not safe to type", () => {
  const gateway = "eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0";
  assert.equal(podInterface(routesOf(gateway, route("cni0")), "10.88.0.2"), "cni0");
  assert.equal(podInterface(routesOf(gateway, route("cni0")), "10.89.0.2"), undefined);
  const own = route("veth1", "FFFFFFFF", "0200580A");
  assert.equal(podInterface(routesOf(route("cni0"), own), "10.88.0.2"), undefined);
  for (const name of ["-j", "cni0;reboot", "$(reboot)", "a".repeat(16)])
    assert.equal(podInterface(routesOf(route(name)), "10.88.0.2"), undefined, name);
});

test("the message has the commands of each active firewall, with the pods' interface", () => {
  const both = ["tcp", "udp"] as const;
  assert.equal(
    firewallText(["ufw"], "cni0", both),
    "ufw on the target blocks TCP and UDP from pods to the machine's ports 600 to 1023, so pods do not reach Services or the cluster's DNS. On the target, run: ufw allow in on cni0",
  );
  assert.match(
    firewallText(["firewalld"], "br-1a2b", ["udp"]),
    /^firewalld on the target blocks UDP .* run: firewall-cmd --permanent --zone=trusted --change-interface=br-1a2b && firewall-cmd --reload$/,
  );
  assert.match(
    firewallText(["ufw", "firewalld"], "cni0", both),
    /^ufw and firewalld .*ufw allow in on cni0; firewall-cmd/,
  );
  assert.match(firewallText([], "cni0", both), /^a packet filter .* run: iptables -I INPUT -i cni0 -j ACCEPT \(/);
  assert.match(
    firewallText(["ufw"], undefined, both),
    /ufw allow from PODS, where PODS is the network of the machine's pods/,
  );
});

test("ignores names of firewalls that it does not know", async () => {
  const host = fakeHost({ clock: fakeClock() });
  assert.deepEqual(await activeFirewalls(host, never), []);
  host.program("sh", async (_args, { stdout }) => {
    stdout.write(`firewalld\nothers ${"x".repeat(500)}\n`);
    return 0;
  });
  assert.deepEqual(await activeFirewalls(host, never), ["firewalld"]);
});

/** A watch of a target. @param says output of the probe. */
function setUp() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const probes: string[] = [];
  const results: (string | undefined)[] = [];
  const t = { pod: undefined as string | undefined, says: "tcp open\n" };
  host.program("sh", async (args, { stdout }) => {
    const isProbe = args.includes("10.96.0.10:53");
    if (isProbe) probes.push(args.join(" "));
    stdout.write(isProbe ? t.says : "ufw\n");
    return 0;
  });
  const watch = createFirewallWatch({
    host,
    rootDir: "/var/lib/kubelet/edge-1",
    pod: () => t.pod,
    destinations: () => ({ tcp: "10.96.0.10:53", udp: "10.96.0.10:53" }),
    onResult: (obstacle) => void results.push(obstacle?.split(" ")[0]),
    clock,
    log: silentLog(),
  });
  const stop = new AbortController();
  const ran = watch.run(stop.signal);
  const end = async () => {
    stop.abort();
    await ran;
  };
  return Object.assign(t, { clock, host, watch, probes, results, end });
}

const blockedByFilter = "tcp blocked\ntcp arrived\n";

test("probes from the first pod, and not for further ones", async () => {
  const t = setUp();
  await t.clock.advance(10_000);
  assert.equal(t.probes.length, 0);
  t.pod = "10.88.0.2";
  for (let n = 0; n < 5; n += 1) {
    t.watch.podsChanged();
    await t.clock.advance(1_000);
  }
  assert.equal(t.probes.length, 1);
  assert.match(t.probes[0] ?? "", / 10\\\.88\\\.0\\\.2 /);
  await t.clock.advance(300_000);
  assert.equal(t.probes.length, 2);
  await t.end();
});

test("reports what blocks the tunnel, and within seconds that nothing does any more", async () => {
  const t = setUp();
  await t.host.fs.apply([
    { kind: "mkdir", path: "/proc/net", parents: true },
    { kind: "write", path: "/proc/net/route", data: routesOf(route("cni0")) },
  ]);
  t.pod = "10.88.0.2";
  t.says = blockedByFilter;
  t.watch.podsChanged();
  await t.clock.advance(500);
  assert.deepEqual(
    [t.probes.length, t.results.at(-1)],
    [1, undefined],
    "a single failure may be a reload of the firewall",
  );
  await t.clock.advance(1_000);
  assert.deepEqual([t.probes.length, t.results.at(-1)], [2, "ufw"]);
  t.says = "";
  await t.clock.advance(20_000);
  assert.equal(t.results.at(-1), "ufw", "a probe that cannot tell changes nothing");
  t.says = "tcp open\n";
  await t.clock.advance(6_000);
  assert.equal(t.results.at(-1), undefined);
  t.says = blockedByFilter;
  t.watch.rulesChanged();
  await t.clock.advance(2_000);
  assert.equal(t.results.at(-1), "ufw", "new rules are a reason to look again");
  t.pod = undefined;
  await t.clock.advance(6_000);
  assert.equal(t.results.at(-1), undefined, "without pods nothing is blocked");
  await t.end();
});
