import { agentAddresses } from "./agent-machine.ts";
import type { HelmLab } from "./helm-lab.ts";
import { networkArgv } from "./namespaces.ts";
import { must, start } from "./processes.ts";
import { dropPackets, type Harm, startSlowRelay } from "./ssh-way.ts";

/** Leads all that the cluster's pods send to a lab's machine by a way on which bytes and their answer take so long: a relay of connections
 *  holds them back, as the test machines' kernel has no netem. Connections that stand end, when it opens and when it is gone. */
export async function detourToEdge({ cluster }: HelmLab, roundTripMs: number): Promise<AsyncDisposable> {
  const { target, sshPort } = agentAddresses;
  const inCluster = (argv: readonly string[]) => networkArgv(cluster.layout, argv);
  const spawn = (argv: readonly string[]) => start(inCluster(argv), { cwd: "/", stdio: ["ignore", "pipe", "inherit"] });
  const relay = await startSlowRelay(spawn, roundTripMs, "0.0.0.0");
  const sshd = `ip daddr ${target} tcp dport ${sshPort}`;
  const rules = `table ip detour {
    chain turn {
      type nat hook prerouting priority -110
      ${sshd} redirect to :${relay.port}
    }
    chain straight {
      type filter hook forward priority 0
      ${sshd} reject with tcp reset
    }
  }`;
  await must(inCluster(["nft", "--file", "-"]), { stdin: rules });
  return {
    async [Symbol.asyncDispose]() {
      await must(inCluster(["nft", "delete", "table", "ip", "detour"]));
      await relay[Symbol.asyncDispose]();
    },
  };
}

/** Drops so many of a hundred packets, by chance, each way between a detour's end and the machine's sshd. They are sent again within that
 *  last stretch, which itself is short. */
export function loseEdgePackets({ cluster, edge }: HelmLab, percent: number): Promise<Harm> {
  const { sshPort } = agentAddresses;
  const machines = {
    cluster: { argv: (argv: readonly string[]) => networkArgv(cluster.layout, argv), packets: `tcp sport ${sshPort}` },
    edge: { argv: (argv: readonly string[]) => networkArgv(edge.layout, argv), packets: `tcp dport ${sshPort}` },
  };
  return dropPackets(Object.values(machines), `numgen random mod 100 < ${percent}`);
}
