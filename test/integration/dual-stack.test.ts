import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { isIPv6 } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { addresses } from "../harness/namespaces.ts";
import { images, openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import { must } from "../harness/processes.ts";
import { hasDocker, isRemote } from "../harness/runtime-daemon.ts";
import { waitFor } from "../harness/wait.ts";
import { curl, forward } from "./kubectl/port-forward.ts";
import { transports } from "./kubectl/transports.ts";

/** The machine's IPv6 address, and the pods' IPv6 network. */
const [machine6, pods6] = ["fd00:10:10::1", "fd00:10:244::/64"];

let cluster: Cluster;
let agent: Agent;
let pods: Pods;

before(async () => {
  cluster = await startCluster({ name: "dual-stack" });
  await must([
    "nsenter",
    `--net=${cluster.ns}`,
    "sh",
    "-ec",
    `sysctl -qw net.ipv6.conf.all.forwarding=1; ip addr add ${machine6}/64 dev node0 nodad`,
  ]);
  await (hasDocker(cluster.provider) ? createEngineNetwork(cluster) : addCniRange(cluster));
  agent = await start([addresses.node, machine6]);
  pods = await openPods(cluster);
});
after(async () => {
  await pods?.[Symbol.asyncDispose]();
  await agent?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

/** @param nodeIPs primary first. Over SSH they are graftlet's own, and the target's addresses are found. */
function start(nodeIPs: readonly string[]): Promise<Agent> {
  return startGraftlet(cluster, isRemote(cluster.provider) ? {} : { args: [`--node-ip=${nodeIPs.join(",")}`] });
}

/** Gives CNI's bridge a second range. containerd notices the file. */
async function addCniRange({ layout }: Cluster): Promise<void> {
  const file = join(layout.containerd, "cni", "10-bridge.conflist");
  const network = JSON.parse(readFileSync(file, "utf8")) as {
    readonly plugins: readonly [{ readonly ipam: { readonly ranges: object[]; readonly routes: object[] } }];
  };
  const [{ ipam }] = network.plugins;
  ipam.ranges.push([{ subnet: pods6 }]);
  ipam.routes.push({ dst: "::/0" });
  writeFileSync(file, JSON.stringify(network));
}

/** Makes the network that the node's pods are to have, before graftlet would make one for IPv4. */
async function createEngineNetwork({ layout, nodeName, mustRunInside }: Cluster): Promise<void> {
  const subnets = ["--subnet", addresses.pods, "--ipv6", "--subnet", pods6];
  const create = ["network", "create", ...subnets, `graftlet-${nodeName}`];
  await mustRunInside(["docker", "--host", `unix://${layout.dockerSocket}`, ...create]);
}

/** A server of both families, which is probed at the pod's first address. */
const server = (more: SpecDraft = {}, hostPort?: number): SpecDraft => ({
  containers: [
    {
      image: images.agnhost,
      command: ["/agnhost", "netexec"],
      ports: [{ containerPort: 8080, ...(hostPort !== undefined && { hostPort }) }],
      readinessProbe: { httpGet: { path: "/hostname", port: 8080 }, periodSeconds: 1 },
      livenessProbe: { tcpSocket: { port: 8080 }, periodSeconds: 1 },
    },
  ],
  ...more,
});

const ipsOf = ({ status }: Pod) => status?.podIPs?.map(({ ip }) => ip ?? "") ?? [];

describe("pods with IPv4 and IPv6 addresses", { timeout: 300_000 }, () => {
  test("status, environment and /etc/hosts have both addresses of a pod, IPv4 first, and its host's, over SSH only one", async () => {
    const field = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
    const env = [field("PODS", "status.podIPs"), field("HOSTS", "status.hostIPs"), field("ONE", "status.podIP")];
    await pods.create("both", { containers: [shell("echo $ONE $PODS $HOSTS; cat /etc/hosts; sleep 3600", { env })] });
    const { status } = await pods.ready("both");
    const [four = "", six = ""] = ipsOf({ status } as Pod);
    assert.equal(status?.podIP, four);
    assert.match(four, /^10\.244\./);
    assert.match(six, /^fd00:10:244::/);
    const hosts = status?.hostIPs?.map(({ ip }) => ip);
    assert.deepEqual(hosts, isRemote(cluster.provider) ? [addresses.node] : [addresses.node, machine6]);
    const [line, ...hostsFile] = (await pods.logged("both", /\tboth\n/)).split("\n");
    assert.equal(line, `${four} ${four},${six} ${hosts?.join(",")}`);
    for (const ip of [four, six]) assert.ok(hostsFile.includes(`${ip}\tboth`), hostsFile.join("\n"));
  });

  test("pods reach each other, and host ports answer, over both families; port-forward works", async () => {
    await pods.create("served", server({}, 18_080));
    const [four = "", six = ""] = ipsOf(await pods.ready("served"));
    await pods.create("client", { containers: [{ image: images.agnhost, command: ["/agnhost", "pause"] }] });
    await pods.ready("client");
    for (const host of [four, `[${six}]`]) {
      const connect = ["/agnhost", "connect", "--timeout=5s", `${host}:8080`];
      await cluster.mustKubectl(["exec", "client", "--", ...connect]);
    }
    for (const host of [addresses.node, `[${machine6}]`]) {
      const answer = await waitFor(`an answer at ${host}`, async () => {
        const { code, stdout } = await curl({ cluster }, [`http://${host}:18080/hostname`]);
        return code === 0 && stdout;
      });
      assert.equal(answer, "served");
    }
    for (const { env } of transports) {
      await using tunnel = await forward({ cluster }, "served", env, 8080);
      assert.equal((await curl({ cluster }, [`http://127.0.0.1:${tunnel.port}/hostname`])).stdout, "served");
    }
  });

  test("with IPv6 as the node's first family, the pod's first address is IPv6, and probes use it; over SSH it is IPv4", async () => {
    if (isRemote(cluster.provider)) {
      assert.match(
        (await pods.until("served", "its address", ({ status }) => status?.podIP !== undefined)).status?.podIP ?? "",
        /^10\./,
      );
      return;
    }
    await agent.stop();
    agent = await start([machine6, addresses.node]);
    await pods.create("six-first", server());
    const { status } = await pods.ready("six-first");
    assert.ok(isIPv6(status?.podIP ?? ""), `${status?.podIP}`);
    assert.deepEqual(
      status?.hostIPs?.map(({ ip }) => ip),
      [machine6, addresses.node],
    );
    const refused = { tcpSocket: { port: 9 }, periodSeconds: 1 };
    await pods.create("refused", { containers: [{ ...server().containers?.[0], readinessProbe: refused }] });
    const message = /^Readiness probe failed: dial tcp \[fd00:10:244::[0-9a-f:]+\]:9: connect: connection refused$/;
    await pods.event("refused", "Unhealthy", message);
    // A pod that ran before keeps its addresses, in the new order.
    const { podIPs } =
      (await pods.until("served", "IPv6 first", ({ status: now }) => isIPv6(now?.podIP ?? ""))).status ?? {};
    assert.equal(podIPs?.length, 2);
  });
});
