// The test cluster by hand: node test/cluster/cluster.ts up|down|status|env|kubeconfig|shell [--name NAME] [--provider NAME]
import { join } from "node:path";
import { parseArgs } from "node:util";
import { clusterName, openCluster, startCluster } from "../harness/cluster.ts";
import { type ContainerdVersion, containerdNamed, containerdUnderTest } from "../harness/containerd-version.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { isAlive } from "../harness/processes.ts";
import { providerUnderTest, providerNamed, type ProviderName } from "../harness/runtime-daemon.ts";
import { clusterNames, isHeld, layoutOf, readState } from "../harness/state.ts";
import { clusterProcesses, tearDown } from "../harness/teardown.ts";

const usage = `usage: node test/cluster/cluster.ts COMMAND [--name NAME] [--node NODE] [--provider cri|docker|ssh|ssh-docker|ssh-systemd|ssh-docker-systemd|ssh-guest|ssh-docker-guest] [--containerd 1.6|2.4]
  up          bring a cluster up and leave it running (etcd, API server, controllers, scheduler, proxy,
              containerd, or dockerd with a provider of Docker, and sshd with one of ssh)
  down        remove it without a trace, also one that a crash left behind
  status      say which clusters are up
  env         print shell commands that point kubectl at it: eval "$(node test/cluster/cluster.ts env)"
  kubeconfig  print the path of the admin's kubeconfig (valid inside the cluster's network)
  shell       a shell inside: its network, its mounts, KUBECONFIG set
NAME is "demo" unless given. With another provider than cri, "-PROVIDER" is appended to it.`;

/** The variable by which each runtime's own tools find it. */
const socketVariables: Readonly<Record<ProviderName, string>> = {
  cri: "CONTAINER_RUNTIME_ENDPOINT",
  docker: "DOCKER_HOST",
  ssh: "CONTAINER_RUNTIME_ENDPOINT",
  "ssh-docker": "DOCKER_HOST",
  "ssh-docker-systemd": "DOCKER_HOST",
  "ssh-systemd": "CONTAINER_RUNTIME_ENDPOINT",
  "ssh-guest": "CONTAINER_RUNTIME_ENDPOINT",
  "ssh-docker-guest": "DOCKER_HOST",
};

const say = (line: string): void => console.error(line);

/** What the command line names. `name` is the cluster's whole name. */
interface Wanted {
  readonly name: string;
  readonly givenName: string;
  readonly node: string | undefined;
  readonly provider: ProviderName;
  readonly containerd: ContainerdVersion;
}

const commands: Readonly<Record<string, (wanted: Wanted) => Promise<number>>> = {
  async up({ name, givenName, node, ...runtime }) {
    const cluster = await startCluster({ name: givenName, ...runtime, say, ...(node ? { nodeName: node } : {}) });
    cluster.release();
    say(
      `cluster ${name} is up. kubectl: eval "$(node test/cluster/cluster.ts env --name ${name})"; removal: node test/cluster/cluster.ts down --name ${name}`,
    );
    return 0;
  },
  async down({ name }) {
    await tearDown(layoutOf(name));
    say(`cluster ${name} is gone`);
    return 0;
  },
  async status() {
    for (const name of clusterNames()) {
      const layout = layoutOf(name);
      const state = readState(layout);
      const daemons = Object.entries(state?.daemons ?? {}).map(
        ([role, id]) => `${role} ${isAlive(id) ? "runs" : "has ended"}`,
      );
      console.log(
        `${name}: ${isHeld(layout) ? "up" : "left over by a crash"}, ${clusterProcesses(layout, state?.holder).length} processes; ${daemons.join(", ")}`,
      );
    }
    if (clusterNames().length === 0) console.log("no cluster is up");
    return 0;
  },
  async env({ name }) {
    const cluster = await openCluster(name);
    const kubectl = networkArgv(cluster.layout, [
      cluster.tools.path("kubectl"),
      `--kubeconfig=${cluster.adminKubeconfig}`,
    ]).join(" ");
    console.log(
      `alias kubectl='${kubectl}'\nexport GRAFTLET_NETNS=${cluster.ns} ${socketVariables[cluster.provider]}=unix://${cluster.runtimeSocket}`,
    );
    return 0;
  },
  async kubeconfig({ name }) {
    console.log((await openCluster(name)).adminKubeconfig);
    return 0;
  },
  async shell({ name }) {
    const cluster = await openCluster(name);
    const env = {
      KUBECONFIG: cluster.adminKubeconfig,
      [socketVariables[cluster.provider]]: `unix://${cluster.runtimeSocket}`,
      PATH: `${join(cluster.tools.path("kubectl"), "..")}:${process.env.PATH ?? ""}`,
    };
    const child = cluster.spawnInside([process.env.SHELL ?? "/bin/sh"], { stdio: "inherit", cwd: process.cwd(), env });
    return await new Promise((resolve) => child.once("close", (code) => resolve(code ?? 1)));
  },
};

async function main(): Promise<number> {
  if (process.argv.slice(2).some((word) => word === "--help" || word === "-h")) {
    console.log(usage);
    return 0;
  }
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      name: { type: "string", default: "demo" },
      node: { type: "string" },
      provider: { type: "string" },
      containerd: { type: "string" },
    },
  });
  const [given = ""] = positionals;
  const command = commands[given];
  if (!command || positionals.length !== 1) {
    console.error(usage);
    return 2;
  }
  const provider = values.provider === undefined ? providerUnderTest() : providerNamed(values.provider, "--provider");
  const name = clusterName(values.name, provider);
  const containerd =
    values.containerd === undefined ? containerdUnderTest() : containerdNamed(values.containerd, "--containerd");
  return await command({ name, givenName: values.name, node: values.node, provider, containerd });
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
