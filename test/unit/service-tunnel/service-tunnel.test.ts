import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { createTunnelLimits } from "../../../src/service-tunnel/tunnel-limits.ts";
import { createServiceTunnel } from "../../../src/service-tunnel/service-tunnel.ts";
import { tunnelSocket } from "../../../src/service-tunnel/rules.ts";
import type { Service } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aSandbox, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";

const rootDir = "/var/lib/kubelet/edge-1";

/** A Service; the first one is the API server's. */
const service = (clusterIP: string, ...ports: number[]): Service => ({
  metadata: {
    name: clusterIP === "10.96.0.1" ? "kubernetes" : `s-${clusterIP}`,
    namespace: "default",
  } as Service["metadata"],
  spec: { clusterIP, clusterIPs: [clusterIP], ports: ports.map((port) => ({ port })) },
});

/** A UDP Service. */
const datagrams = (clusterIP: string, ...ports: number[]): Service => {
  const { metadata, spec } = service(clusterIP);
  return { metadata, spec: { ...spec, ports: ports.map((port) => ({ port, protocol: "UDP" })) } };
};

/** @param udpPorts number of UDP ports that the relay can open. @param answer overrides its reply. */
function setUp({
  programs = ["nft", "python3"],
  udpPorts = 10,
  answer,
}: {
  readonly programs?: readonly string[];
  readonly udpPorts?: number;
  readonly answer?: string;
} = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const inputs: string[] = [];
  const relays: { readonly lines: string[]; end(): void; say(line: string): void }[] = [];
  let services: readonly Service[] | undefined = [service("10.96.0.1", 443)];
  let tell = () => {};
  let troubles = 0;
  const events: string[] = [];
  const install = (name: string) =>
    name === "nft"
      ? host.program("nft", async (_args, { stdin }) => {
          inputs.push(await text(stdin));
          return 0;
        })
      : host.program(name, async (_args, { stdin, stdout, killed }) => {
          const lines: string[] = [];
          const over = Promise.withResolvers<void>();
          const say = (line: string) => void stdout.write(`${line}\n`);
          relays.push({ lines, say, end: over.resolve });
          stdin.setEncoding("utf8").on("data", (typed: string) => {
            for (const line of typed.split("\n").filter(Boolean)) {
              lines.push(line);
              if (line.startsWith("udp"))
                say(
                  answer ??
                    [
                      "udp",
                      ...line
                        .split(" ")
                        .slice(1, 1 + udpPorts)
                        .map((to) => `${to}=700`),
                    ].join(" "),
                );
            }
          });
          stdin.once("end", over.resolve);
          killed.addEventListener("abort", () => over.resolve());
          say("ready 1023");
          await over.promise;
          return 0;
        });
  programs.forEach(install);
  const podCache = aColumn<RuntimePod>();
  const way = createServiceTunnel({
    headless: undefined,
    host,
    rootDir,
    nodeName: "edge-1",
    tunnelLimits: createTunnelLimits(),
    serviceFilter: () => true,
    podCache,
    services: {
      list: () => services,
      onChange(hear) {
        tell = hear;
        return () => void (tell = () => {});
      },
    },
    waitForTarget: async () => never,
    onObstacleChange: () => void (troubles += 1),
    report: (reason, message) => void events.push(`${reason} ${message}`),
    clock,
    log: silentLog(),
  });
  const stop = new AbortController();
  const ran = way.run(stop.signal);
  return {
    clock,
    host,
    podCache,
    way,
    inputs,
    relays,
    install,
    troubles: () => troubles,
    events,
    become(next: readonly Service[]) {
      services = next;
      tell();
    },
    async stop() {
      stop.abort();
      await clock.advance(2_000);
      await ran;
    },
  };
}

test("installs rules once the relay listens, and updates them with the Services", async () => {
  const t = setUp();
  await t.clock.advance(1_000);
  assert.match(t.inputs[0] ?? "", /redirect to :1023[^]*connections \{ 10\.96\.0\.1 \. 443 \}/);
  t.become([service("10.96.0.1", 443), service("10.96.0.2", 80)]);
  await t.clock.advance(1_000);
  assert.match(t.inputs[1] ?? "", /^flush set .* connections\nadd element .*10\.96\.0\.2 \. 80/);
  assert.equal(t.way.obstacle(), undefined);
  await t.stop();
});

test("a pod's start waits for the tunnel to admit it; its end revokes access", async () => {
  const t = setUp();
  const { signal } = new AbortController();
  const joined = t.way.openFor("uid-1", ["10.88.0.2"], signal);
  await t.clock.advance(1_000);
  await joined;
  assert.ok(t.inputs.join("").includes("pods { 10.88.0.2 }"));
  assert.equal(
    t.relays[0]?.lines.findLast((line) => line.startsWith("pods")),
    "pods 10.88.0.2",
  );
  const left = t.way.closeFor("uid-1", signal);
  await t.clock.advance(1_000);
  await left;
  assert.match(t.inputs.at(-1) ?? "", /^flush set .* pods\n$/);
  await t.stop();
});

test("restarts a relay that exits, and updates the rules to its port", async () => {
  const t = setUp();
  await t.clock.advance(1_000);
  t.relays[0]?.end();
  await t.clock.advance(2_000);
  assert.equal(t.relays.length, 2);
  assert.match(t.inputs.at(-1) ?? "", /redirect to :1023/);
  await t.stop();
});

test("restores all rules if they were removed", async () => {
  const t = setUp();
  await t.clock.advance(1_000);
  t.relays[0]?.say("lost");
  await t.clock.advance(1_000);
  assert.match(t.inputs[1] ?? "", /^add table/);
  await t.stop();
});

for (const [missing, left] of [
  ["nft", ["python3"]],
  ["python3 or perl", ["nft"]],
] as const)
  test(`reports why a target without ${missing} has no tunnel, starts pods regardless, and retries`, async () => {
    const t = setUp({ programs: left });
    await t.clock.advance(1_000);
    assert.match(t.way.obstacle()?.message ?? "", new RegExp(missing));
    assert.equal(t.troubles(), 1);
    await t.way.openFor("uid-1", ["10.88.0.2"], never);
    for (const name of ["nft", "python3"]) t.install(name);
    await t.clock.advance(40_000);
    assert.deepEqual([t.way.obstacle(), t.troubles()], [undefined, 2]);
    await t.stop();
  });

test("reports a firewall that blocks the observed pod, until it no longer does", async () => {
  const t = setUp();
  let filter = "tcp blocked\ntcp arrived\n";
  t.host.program("sh", async (args, { stdout }) => {
    if (args.includes("10.96.0.1:443")) stdout.write(filter);
    return 0;
  });
  await t.host.fs.apply([
    { kind: "mkdir", path: "/proc/net", parents: true },
    { kind: "write", path: "/proc/net/route", data: "" },
  ]);
  await t.clock.advance(1_000);
  await t.way.openFor("uid-1", ["10.88.0.2"], never);
  assert.equal(t.way.obstacle(), undefined);
  t.podCache.set("uid-1", observe([aSandbox({ network: { ip: "10.88.0.2", additionalIps: [] } })], []));
  await t.clock.advance(2_000);
  assert.equal(t.way.obstacle()?.reason, "FirewallBlocksTunnel");
  assert.equal(t.troubles(), 1);
  filter = "tcp open\n";
  await t.clock.advance(6_000);
  assert.deepEqual([t.way.obstacle(), t.troubles()], [undefined, 2]);
  await t.stop();
});

test("replaces a stale socket of an earlier process", async () => {
  const t = setUp();
  await t.host.fs.apply([
    { kind: "mkdir", path: "/run", parents: true },
    { kind: "write", path: tunnelSocket(rootDir), data: "" },
  ]);
  await t.clock.advance(1_000);
  assert.equal(t.relays.length, 1);
  await t.stop();
});

test("a Service with more UDP ports than the target has does not affect other Services' ports and causes one event", async () => {
  const t = setUp({ udpPorts: 2 });
  t.become([datagrams("10.96.0.2", 1, 2, 3), datagrams("10.96.0.10", 53), service("10.96.0.3", 80)]);
  await t.clock.advance(1_000);
  assert.match(t.inputs.join(""), /datagrams \{ 10\.96\.0\.10 \. 53 : 700, 10\.96\.0\.2 \. 1 : 700 \}/);
  assert.deepEqual(
    t.events.map((event) => event.split(":")[0]),
    ["UDPNotForwarded UDP to 10.96.0.2"],
  );
  t.become([datagrams("10.96.0.2", 1, 2, 3), datagrams("10.96.0.10", 53)]);
  await t.clock.advance(1_000);
  assert.equal(t.events.length, 1, "it is said once");
  assert.equal(t.relays[0]?.lines.filter((line) => line.startsWith("udp")).length, 1, "and asked once");
  await t.stop();
});

test("redirects five hundred ports of one Service", async () => {
  const t = setUp();
  t.become([service("10.96.0.2", ...Array.from({ length: 500 }, (_, index) => 1_000 + index))]);
  await t.clock.advance(1_000);
  assert.equal(t.inputs.join("").match(/10\.96\.0\.2 \. 1\d\d\d/g)?.length, 500);
  assert.deepEqual(t.events, []);
  await t.stop();
});

test("reports a cluster without IPv4 Services, and starts the tunnel once there is one", async () => {
  const t = setUp();
  t.become([service("fd00::1", 443)]);
  await t.clock.advance(1_000);
  assert.match(t.way.obstacle()?.message ?? "", /no IPv4 Services/);
  t.become([service("10.96.0.1", 443)]);
  await t.clock.advance(40_000);
  assert.equal(t.way.obstacle(), undefined);
  await t.stop();
});

test("emits one event for cluster addresses inside the target's pod network", async () => {
  const t = setUp();
  const routes =
    "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\ncni0 0000600A 00000000 0001 0 0 0 0000FFFF 0 0 0\n";
  await t.host.fs.apply([
    { kind: "mkdir", path: "/proc/net", parents: true },
    { kind: "write", path: "/proc/net/route", data: routes },
  ]);
  await t.clock.advance(1_000);
  assert.deepEqual(t.events, []);
  await t.way.openFor("uid-1", ["10.96.7.2"], never);
  await t.clock.advance(1_000);
  assert.equal(t.events.length, 1);
  assert.match(
    t.events[0] ?? "",
    /^PodNetworkOverlaps 10\.96\.0\.1 of the cluster's addresses .* give the target's pods another subnet$/,
  );
  t.become([service("10.96.0.1", 443, 444)]);
  await t.clock.advance(1_000);
  assert.equal(t.events.length, 1, "it is said once");
  await t.stop();
});

test("runs no command on the target while five hundred Services are unchanged", async () => {
  const t = setUp();
  t.become(Array.from({ length: 500 }, (_, index) => service(`10.96.${index >> 8}.${index & 255}`, 80)));
  await t.way.openFor("uid-1", ["10.88.0.2"], never);
  await t.clock.advance(2_000);
  const asked = () => [t.inputs.length, t.relays.length, t.relays[0]?.lines.length];
  const before = asked();
  await t.clock.advance(600_000);
  assert.deepEqual(asked(), before);
  await t.stop();
});

test("emits at most one event a minute for pods that the relay refuses, but no event for other addresses", async () => {
  const t = setUp();
  await t.way.openFor("uid-1", ["10.88.0.2"], never);
  await t.clock.advance(1_000);
  t.relays[0]?.say("full 10.88.0.9");
  await t.clock.advance(1_000);
  assert.deepEqual(t.events, []);
  for (let n = 0; n < 100; n += 1) t.relays[0]?.say("full 10.88.0.2");
  await t.clock.advance(1_000);
  assert.equal(t.events.length, 1);
  assert.match(
    t.events[0] ?? "",
    /^ConnectionsNotForwarded further connections from pod 10\.88\.0\.2 to Services are refused/,
  );
  await t.clock.advance(60_000);
  assert.equal(t.events.length, 2);
  await t.stop();
});

test("ignores ports that the relay reports for other destinations, or that are not privileged", async () => {
  const t = setUp({ answer: "udp 10.96.0.10:53=5353 10.96.0.99:53=700 10.96.0.2:1=701x 10.96.0.2:2=702" });
  t.become([datagrams("10.96.0.2", 1, 2), datagrams("10.96.0.10", 53), service("10.96.0.3", 80)]);
  await t.clock.advance(1_000);
  assert.match(t.inputs.join(""), /datagrams \{ 10\.96\.0\.2 \. 2 : 702 \}/);
  await t.stop();
});

test("treats a relay that reports no ports as dead after 15 s", async () => {
  const t = setUp({ answer: "" });
  t.become([datagrams("10.96.0.10", 53)]);
  await t.clock.advance(14_000);
  assert.equal(t.relays.length, 1);
  await t.clock.advance(3_000);
  assert.equal(t.relays.length, 2);
  await t.stop();
});
