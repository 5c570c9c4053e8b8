// The test cluster by hand: node test/cluster/cluster.ts up|down|status|env|kubeconfig|shell [--name NAME]
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openCluster, startCluster } from "../harness/cluster.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { isAlive } from "../harness/processes.ts";
import { clusterNames, isHeld, layoutOf, readState } from "../harness/state.ts";
import { clusterProcesses, tearDown } from "../harness/teardown.ts";

const usage = `usage: node test/cluster/cluster.ts COMMAND [--name NAME] [--node NODE]
  up          bring a cluster up and leave it running (etcd, API server, controllers, scheduler, proxy, containerd)
  down        remove it without a trace, also one that a crash left behind
  status      say which clusters are up
  env         print shell commands that point kubectl at it: eval "$(node test/cluster/cluster.ts env)"
  kubeconfig  print the path of the admin's kubeconfig (valid inside the cluster's network)
  shell       a shell inside: its network, its mounts, KUBECONFIG set
NAME is "demo" unless given.`;

const say = (line: string): void => console.error(line);

const commands: Readonly<Record<string, (name: string, node: string | undefined) => Promise<number>>> = {
  async up(name, nodeName) {
    const cluster = await startCluster({ name, say, ...(nodeName ? { nodeName } : {}) });
    cluster.release();
    say(
      `cluster ${name} is up. kubectl: eval "$(node test/cluster/cluster.ts env --name ${name})"; removal: node test/cluster/cluster.ts down --name ${name}`,
    );
    return 0;
  },
  async down(name) {
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
  async env(name) {
    const cluster = await openCluster(name);
    const kubectl = networkArgv(cluster.layout, [
      cluster.tools.path("kubectl"),
      `--kubeconfig=${cluster.adminKubeconfig}`,
    ]).join(" ");
    console.log(
      `alias kubectl='${kubectl}'\nexport GRAFTLET_NETNS=${cluster.ns} CONTAINER_RUNTIME_ENDPOINT=unix://${cluster.containerdSocket}`,
    );
    return 0;
  },
  async kubeconfig(name) {
    console.log((await openCluster(name)).adminKubeconfig);
    return 0;
  },
  async shell(name) {
    const cluster = await openCluster(name);
    const env = {
      KUBECONFIG: cluster.adminKubeconfig,
      CONTAINER_RUNTIME_ENDPOINT: `unix://${cluster.containerdSocket}`,
      PATH: `${join(cluster.tools.path("kubectl"), "..")}:${process.env.PATH ?? ""}`,
    };
    const child = cluster.spawnInside([process.env.SHELL ?? "/bin/sh"], { stdio: "inherit", cwd: process.cwd(), env });
    return await new Promise((resolve) => child.once("close", (code) => resolve(code ?? 1)));
  },
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { name: { type: "string", default: "demo" }, node: { type: "string" } },
});
const command = commands[positionals[0] ?? ""];
if (!command || positionals.length !== 1) {
  console.error(usage);
  process.exitCode = 2;
} else {
  process.exitCode = await command(values.name, values.node).catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : String(error));
    return 1;
  });
}
