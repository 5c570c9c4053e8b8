import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { NamespaceMode, PodSandboxState, Protocol } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type Pods, type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";
import { argvOf } from "../harness/argv.ts";

// What Docker's sandboxes have besides what every runtime's have: a network of the node's own, labels, a resolver.

const image = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
let shared: DockerRig | undefined;

before(async () => {
  shared = await startDockerRig("docker-sandboxes");
});
after(async () => shared?.[Symbol.asyncDispose]());

interface Node extends RuntimeUnderTest {
  readonly rig: DockerRig;
  readonly pods: Pods;
}

/** A node of its own on the daemon, whose pods and network are removed at the end. */
async function node(name: string, config: Readonly<Record<string, unknown>> = {}): Promise<Node> {
  assert.ok(shared, "the daemon could not be started");
  const rig = shared;
  const runtime = dockerRuntime({
    config: readDockerConfig({ socket: `unix://${rig.socket}`, ...config }, name),
    requestTimeoutMs: 60_000,
    nodeName: name,
    containerLogs: { maxSizeBytes: 10 << 20, maxFiles: 5 },
    host: rig.host,
    clock: systemClock(),
    log: createLogger(0),
  });
  const underTest = { runtime, image, missingImage: "registry.k8s.io/none:1", logDirectory: rig.layout.podLogs };
  const pods = podsOf({ ...underTest, [Symbol.asyncDispose]: async () => {} });
  return {
    ...underTest,
    rig,
    pods,
    async [Symbol.asyncDispose]() {
      await pods[Symbol.asyncDispose]();
      await rig.docker(["network", "rm", `graftlet-${name}`]);
      await runtime[Symbol.asyncDispose]();
    },
  };
}

async function inspect(rig: DockerRig, kind: string, name: string, format: string): Promise<string> {
  const { code, stdout, stderr } = await rig.docker([kind, "inspect", "--format", format, name]);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

async function lines(rig: DockerRig, ...args: string[]): Promise<string[]> {
  const { stdout } = await rig.docker(args);
  return stdout.split("\n").filter((line) => line !== "");
}

const networksOf = (rig: DockerRig, name: string) =>
  lines(rig, "network", "ls", "--no-trunc", "--filter", `label=graftlet.dev/node=${name}`, "--format", "{{.ID}}");
const subnetOf = (rig: DockerRig, network: string) =>
  inspect(rig, "network", network, "{{(index .IPAM.Config 0).Subnet}}");

async function addressOf(runtime: Runtime, id: string): Promise<string> {
  return (await runtime.podSandboxStatus(id, patience())).status?.network?.ip ?? "";
}

function assign(runtime: Runtime, podCidr: string): Promise<void> {
  return runtime.updateRuntimeConfig({ runtimeConfig: { networkConfig: { podCidr } } }, patience());
}

test("connects concurrent pods to one labelled network with the configured subnet, and keeps the network", async () => {
  await using it = await node("many", { podCIDR: "10.244.1.0/24" });
  const ids = await Promise.all([1, 2, 3, 4].map(() => it.pods.run(it.pods.config())));
  assert.equal((await networksOf(it.rig, "many")).length, 1);
  assert.equal(await subnetOf(it.rig, "graftlet-many"), "10.244.1.0/24");
  const addresses = await Promise.all(ids.map((id) => addressOf(it.runtime, id)));
  assert.equal(new Set(addresses).size, 4);
  for (const address of addresses) assert.match(address, /^10\.244\.1\.\d+$/);
  await it.pods[Symbol.asyncDispose]();
  assert.equal((await networksOf(it.rig, "many")).length, 1);
});

test("prefers the subnet that the cluster assigns, and replaces the network once no pod uses the old one", async () => {
  await using it = await node("assigned", { podCIDR: "10.244.2.0/24" });
  await assign(it.runtime, "fd00:1::/64,10.244.3.0/24");
  assert.equal(await subnetOf(it.rig, "graftlet-assigned"), "10.244.3.0/24");
  const first = await it.pods.run(it.pods.config());
  await assign(it.runtime, "10.244.4.0/24");
  const second = await it.pods.run(it.pods.config());
  assert.match(await addressOf(it.runtime, second), /^10\.244\.3\./);
  for (const id of [first, second]) await it.runtime.stopPodSandbox(id, patience());
  assert.match(await addressOf(it.runtime, await it.pods.run(it.pods.config())), /^10\.244\.4\./);
  assert.equal((await networksOf(it.rig, "assigned")).length, 1);
});

test("recreates a removed network with the next pod", async () => {
  await using it = await node("removed", { podCIDR: "10.244.5.0/24" });
  await it.runtime.stopPodSandbox(await it.pods.run(it.pods.config()), patience());
  assert.equal((await it.rig.docker(["network", "rm", "graftlet-removed"])).code, 0);
  assert.match(await addressOf(it.runtime, await it.pods.run(it.pods.config())), /^10\.244\.5\./);
});

test("uses a foreign network of the configured name unchanged", async () => {
  await using it = await node("theirs", { podCIDR: "10.244.6.0/24" });
  const { stdout } = await it.rig.docker(["network", "create", "--subnet", "10.244.7.0/24", "graftlet-theirs"]);
  assert.match(await addressOf(it.runtime, await it.pods.run(it.pods.config())), /^10\.244\.7\./);
  await assign(it.runtime, "10.244.8.0/24");
  assert.equal(await inspect(it.rig, "network", "graftlet-theirs", "{{.Id}} {{json .Labels}}"), `${stdout.trim()} {}`);
});

test("reports both addresses of a pod in a network with IPv6, IPv4 first", async () => {
  await using it = await node("dual");
  const subnets = ["--subnet", "10.244.8.0/24", "--ipv6", "--subnet", "fd00:244:8::/64"];
  assert.equal((await it.rig.docker(["network", "create", ...subnets, "graftlet-dual"])).code, 0);
  const id = await it.pods.run(it.pods.config());
  const { network } = (await it.runtime.podSandboxStatus(id, patience())).status ?? {};
  assert.match(network?.ip ?? "", /^10\.244\.8\./);
  assert.deepEqual(
    network?.additionalIps.map(({ ip }) => ip.startsWith("fd00:244:8:")),
    [true],
  );
});

test("reports in NetworkReady, with the daemon's message, that the network cannot be created", async () => {
  await using first = await node("first", { podCIDR: "10.244.9.0/24" });
  await first.pods.run(first.pods.config());
  await using second = await node("second", { podCIDR: "10.244.9.0/24" });
  await assert.rejects(second.pods.run(second.pods.config()), { message: /Pool overlaps/ });
  const networkReady = async () => {
    const { status } = await second.runtime.status(patience());
    return status?.conditions.find(({ type }) => type === "NetworkReady");
  };
  const unready = await networkReady();
  assert.deepEqual([unready?.status, unready?.reason], [false, "NetworkPluginNotReady"]);
  assert.match(unready?.message ?? "", /Pool overlaps/);
  await first.pods[Symbol.asyncDispose]();
  assert.equal((await first.rig.docker(["network", "rm", "graftlet-first"])).code, 0);
  assert.equal((await networkReady())?.status, true);
});

test("keeps a container's resolv.conf as requested, even across a daemon restart", async () => {
  await using it = await node("resolver");
  const dnsConfig = { servers: ["10.96.0.10", "10.96.0.11"], searches: ["ns.svc.cluster.local"], options: ["ndots:5"] };
  const wanted = "search ns.svc.cluster.local\nnameserver 10.96.0.10\nnameserver 10.96.0.11\noptions ndots:5\n";
  const config = { ...it.pods.config(), dnsConfig };
  const sandbox = await it.pods.run(config);
  const seen = async (name: string) => {
    const id = await it.pods.create(sandbox, config, {
      metadata: { name, attempt: 0 },
      command: ["sleep", "60"],
      logPath: `${name}.log`,
    });
    await it.runtime.startContainer(id, patience());
    const read = async () => {
      const { stdout } = await it.runtime.execSync(id, ["cat", "/etc/resolv.conf"], 10, patience());
      return Buffer.from(stdout).toString();
    };
    assert.equal(await read(), wanted);
    return read;
  };
  const first = await seen("first");
  await it.rig.kill();
  await it.rig.start();
  const second = await seen("second");
  assert.deepEqual([await first(), await second()], [wanted, wanted]);
});

test("runs a pod in the host's network, PID and IPC namespaces", async () => {
  await using it = await node("host");
  const config = it.pods.config();
  const namespaceOptions = { network: NamespaceMode.NODE, pid: NamespaceMode.NODE, ipc: NamespaceMode.NODE };
  Object.assign(config.linux?.securityContext ?? {}, { namespaceOptions: { ...namespaceOptions, targetId: "" } });
  const id = await it.pods.run(config);
  const { status } = await it.runtime.podSandboxStatus(id, patience());
  assert.equal(status?.network?.ip, "");
  const { network, pid, ipc } = status?.linux?.namespaces?.options ?? {};
  assert.deepEqual({ network, pid, ipc }, namespaceOptions);
  assert.deepEqual(await networksOf(it.rig, "host"), []);
  assert.equal(
    await inspect(it.rig, "container", id, "{{.HostConfig.NetworkMode}} {{.HostConfig.UTSMode}}"),
    "host host",
  );
});

test("applies host ports, sysctls, cgroup and hostname; fails cleanly if a port is in use", async () => {
  await using it = await node("ports");
  const mapping = { protocol: Protocol.TCP, containerPort: 80, hostPort: 18080, hostIp: "127.0.0.1" };
  const config = { ...it.pods.config(), portMappings: [mapping, { ...mapping, containerPort: 81, hostPort: 0 }] };
  Object.assign(config.linux ?? {}, { cgroupParent: "/kubepods/podx", sysctls: { "net.core.somaxconn": "512" } });
  const id = await it.pods.run(config);
  assert.equal(
    await inspect(it.rig, "container", id, "{{json .HostConfig.PortBindings}} {{.HostConfig.CgroupParent}}"),
    '{"80/tcp":[{"HostIp":"127.0.0.1","HostPort":"18080"}]} /kubepods/podx',
  );
  assert.equal(
    await inspect(it.rig, "container", id, "{{json .HostConfig.Sysctls}} {{.Config.Hostname}}"),
    '{"net.core.somaxconn":"512"} contract',
  );
  const again = { ...it.pods.config(), portMappings: [mapping] };
  await assert.rejects(it.pods.run(again), { message: /port is already allocated/ });
  assert.deepEqual(
    (await it.runtime.listPodSandbox(undefined, patience())).map((sandbox) => sandbox.id),
    [id],
  );
});

test("keeps the loopback rule of a host port while its sandbox runs, and removes it even if the sandbox's end was not observed", async () => {
  await using it = await node("loopback");
  const rules = async () => {
    const { stdout } = await it.rig.host.run(argvOf(["iptables", "-t", "nat", "-S", "OUTPUT"]));
    return stdout
      .split("\n")
      .flatMap((line) => / --dport (\d+) .*"graftlet\.dev\/node=loopback"/.exec(line)?.[1] ?? []);
  };
  const run = (hostPort: number) => {
    const mapping = { protocol: Protocol.TCP, containerPort: 80, hostPort, hostIp: "127.0.0.1" };
    return it.pods.run({ ...it.pods.config(), portMappings: [mapping] });
  };
  const [stopped, removed, ended, lost] = await Promise.all([18081, 18082, 18083, 18084].map(run));
  assert.ok(stopped && removed && ended && lost);
  assert.deepEqual((await rules()).sort(), ["18081", "18082", "18083", "18084"]);
  await it.runtime.stopPodSandbox(stopped, patience());
  await it.runtime.removePodSandbox(removed, patience());
  assert.deepEqual((await rules()).sort(), ["18083", "18084"]);
  await it.rig.docker(["kill", ended]);
  await it.rig.docker(["rm", "--force", lost]);
  assert.deepEqual((await rules()).sort(), ["18083", "18084"]);
  await using later = await node("loopback");
  await later.runtime.listPodSandbox(undefined, patience());
  assert.deepEqual(await rules(), []);
});

test("stops and removes the containers of a sandbox that another client removed", async () => {
  await using it = await node("orphans");
  const { sandboxId, containerId } = await it.pods.runOne(["sleep", "3600"]);
  assert.equal((await it.rig.docker(["rm", "--force", sandboxId])).code, 0);
  assert.equal(await inspect(it.rig, "container", containerId, "{{.State.Status}}"), "running");
  await it.runtime.stopPodSandbox(sandboxId, patience());
  assert.equal(await inspect(it.rig, "container", containerId, "{{.State.Status}}"), "exited");
  await it.runtime.removePodSandbox(sandboxId, patience());
  await assert.rejects(it.runtime.containerStatus(containerId, patience()), { code: "not_found" });
});

test("hides the pods of two nodes on one daemon from each other", async () => {
  await using one = await node("one");
  await using other = await node("other");
  const { sandboxId, containerId } = await one.pods.runOne(["sleep", "3600"]);
  const { runtime } = other;
  assert.deepEqual(await runtime.listPodSandbox(undefined, patience()), []);
  assert.deepEqual(await runtime.listContainers(undefined, patience()), []);
  await assert.rejects(runtime.podSandboxStatus(sandboxId, patience()), { code: "not_found" });
  await runtime.stopPodSandbox(sandboxId, patience());
  await runtime.removePodSandbox(sandboxId, patience());
  assert.equal(await inspect(one.rig, "container", containerId, "{{.State.Status}}"), "running");
  const { status } = await one.runtime.podSandboxStatus(sandboxId, patience());
  assert.equal(status?.state, PodSandboxState.SANDBOX_READY);
});

test("probes the daemon's capabilities and leaves nothing behind", async () => {
  await using it = await node("trials");
  const why = await it.runtime.unsupportedReason?.("privileged", patience());
  const id = await it.pods.run(it.pods.config());
  const trial = async (...options: string[]) => {
    const args = ["run", "--detach", "--network=none", "--user=0", ...options, "registry.k8s.io/pause:3.10.2"];
    const { code, stdout } = await it.rig.docker(args);
    if (code === 0) await it.rig.docker(["rm", "--force", stdout.trim()]);
    return code === 0;
  };
  assert.equal(why === undefined, await trial("--privileged"));
  const score = Number(await inspect(it.rig, "container", id, "{{.HostConfig.OomScoreAdj}}"));
  assert.equal(score, (await trial("--oom-score-adj=-998")) ? -998 : 0);
  assert.equal(await it.runtime.unsupportedReason?.("memoryLimit", patience()), undefined);
  assert.deepEqual(await lines(it.rig, "ps", "--all", "--quiet", "--filter", "label=graftlet.dev/trial"), []);
});

test("fails within seconds on a frozen daemon and names its socket; recovers once it is thawed", async () => {
  await using it = await node("frozen");
  const id = await it.pods.run(it.pods.config());
  it.rig.freeze();
  try {
    await assert.rejects(it.runtime.status(patience()), { code: "deadline_exceeded", message: /docker\.sock.*10 s/ });
  } finally {
    it.rig.thaw();
  }
  await it.runtime.status(patience());
  const { status } = await it.runtime.podSandboxStatus(id, patience());
  assert.equal(status?.state, PodSandboxState.SANDBOX_READY);
});
