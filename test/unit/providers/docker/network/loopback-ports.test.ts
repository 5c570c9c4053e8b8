import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { dockerOwnedResources } from "../../../../../providers/docker/owned-resources.ts";
import { createLoopbackPorts } from "../../../../../providers/docker/network/loopback-ports.ts";
import { nodeLabel } from "../../../../../src/pod/labels.ts";
import type { FakeHost } from "../../../../fakes/host.ts";
import { type EngineCall, fakeEngine } from "../engine.ts";

const { signal } = new AbortController();

const theirs = [
  "-P OUTPUT ACCEPT",
  '-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  `-A OUTPUT ! -s 127.0.0.0/8 -d 127.0.0.1/32 -p tcp -m tcp --dport 99 -m comment --comment "${nodeLabel}=n10" -j DNAT --to-destination 172.17.0.9:99`,
];
const rule = (protocol: string, hostPort: number, to: string) =>
  `-A OUTPUT ! -s 127.0.0.0/8 -d 127.0.0.1/32 -p ${protocol} -m ${protocol} --dport ${hostPort} -m comment --comment "${nodeLabel}=n1" -j DNAT --to-destination ${to}`;

interface Port {
  readonly IP?: string;
  readonly PrivatePort: number;
  readonly PublicPort?: number;
  readonly Type: string;
}

const sandbox = (State: string, address: string, Ports: readonly Port[]) => ({
  Id: address,
  State,
  Ports,
  HostConfig: { NetworkMode: "net-id" },
  NetworkSettings: {
    Networks: {
      added: { NetworkID: "other", IPAddress: "10.0.0.1" },
      pods: { NetworkID: "net-id", IPAddress: address },
    },
  },
});
const published = (IP: string, PublicPort: number, Type = "tcp"): Port => ({ IP, PrivatePort: 8080, PublicPort, Type });

/** A machine with iptables whose `nat OUTPUT` is `lines`, and a daemon with those containers. */
async function machine(lines: string[], sandboxes: { list: readonly unknown[] }) {
  const engine = await fakeEngine(({ path, query }: EngineCall) => {
    const labels = query.get("filters") ?? "";
    if (path !== "/containers/json") return path === "/networks" ? { status: 200, body: [] } : { status: 404 };
    return { status: 200, body: labels.includes("podsandbox") && labels.includes(`=n1"`) ? sandboxes.list : [] };
  });
  tables(engine.parts.host, lines);
  return engine;
}

function tables(host: FakeHost, lines: string[]): void {
  host.program("iptables", (args, { stdout }) => {
    assert.equal(args.join(" "), "-w 5 -t nat -S OUTPUT");
    stdout.write(`${lines.join("\n")}\n`);
    return 0;
  });
  host.program("iptables-restore", async (args, { stdin }) => {
    assert.ok(args.includes("--noflush"), "all other rules would be gone");
    const [table, ...changes] = (await text(stdin)).trimEnd().split("\n");
    assert.deepEqual([table, changes.pop()], ["*nat", "COMMIT"]);
    for (const change of changes) {
      const standing = lines.indexOf(change.replace(/^-D/, "-A"));
      if (change.startsWith("-A")) lines.push(change);
      else if (standing < 0) return 1;
      else lines.splice(standing, 1);
    }
    return 0;
  });
}

const commandsOf = (host: FakeHost) => host.commands.map(([program]) => program);

test("sets one rule for each loopback host port of a running sandbox, but none for other ports", async () => {
  const lines = [...theirs, rule("tcp", 7, "172.17.0.7:8080")];
  const list = [
    sandbox("running", "172.17.0.2", [
      published("127.0.0.1", 54323),
      published("127.0.0.1", 53, "udp"),
      published("10.10.0.1", 80),
      published("0.0.0.0", 81),
      { PrivatePort: 5000, Type: "tcp" },
    ]),
    sandbox("exited", "", [published("127.0.0.1", 6)]),
  ];
  await using engine = await machine(lines, { list });
  const ports = createLoopbackPorts(engine.parts);
  await ports.sync(signal);
  const settled = [...theirs, rule("tcp", 54323, "172.17.0.2:8080"), rule("udp", 53, "172.17.0.2:8080")];
  assert.deepEqual(lines, settled);
  await ports.sync(signal);
  assert.deepEqual(lines, settled);
  assert.deepEqual(commandsOf(engine.parts.host), ["iptables", "iptables-restore", "iptables"]);
});

test("redirects a port taken over by another sandbox, and removes the rule with the last sandbox", async () => {
  const lines = [...theirs];
  const sandboxes = { list: [sandbox("running", "172.17.0.2", [published("127.0.0.1", 5)])] };
  await using engine = await machine(lines, sandboxes);
  const ports = createLoopbackPorts(engine.parts);
  await ports.sync(signal);
  sandboxes.list = [sandbox("running", "172.17.0.3", [published("127.0.0.1", 5)])];
  await ports.sync(signal);
  assert.deepEqual(lines, [...theirs, rule("tcp", 5, "172.17.0.3:8080")]);
  sandboxes.list = [];
  await ports.sync(signal);
  assert.deepEqual(lines, theirs);
});

test("starts pods even without iptables, or without permission to use it", async () => {
  const list = [sandbox("running", "172.17.0.2", [published("127.0.0.1", 5)])];
  await using engine = await machine([], { list });
  const ports = createLoopbackPorts(engine.parts);
  engine.parts.host.program("iptables", (_args, { stderr }) => {
    stderr.write("iptables: Permission denied (you must be root)\n");
    return 4;
  });
  await ports.sync(signal);
  assert.deepEqual(await dockerOwnedResources(engine.parts, signal), []);
  engine.parts.host.program("iptables", undefined);
  await ports.sync(signal);
  assert.deepEqual(await dockerOwnedResources(engine.parts, signal), []);
});

test("removes existing rules when the node is removed", async () => {
  const lines = [...theirs, rule("tcp", 7, "172.17.0.7:8080")];
  await using engine = await machine(lines, { list: [] });
  const [rules, ...others] = await dockerOwnedResources(engine.parts, signal);
  assert.deepEqual([rules?.name, others], ["1 iptables rule for host ports on 127.0.0.0/8", []]);
  await rules?.remove(signal);
  assert.deepEqual(lines, theirs);
});
