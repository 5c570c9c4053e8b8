import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { agentAddresses, agentNetworkArgv } from "./agent-machine.ts";
import type { Cluster } from "./cluster.ts";
import { networkArgv } from "./namespaces.ts";
import { firstLine, must } from "./processes.ts";

/** What is wrong with the way, until it is mended. */
export interface Harm extends AsyncDisposable {
  /** Ends it, and says how many packets it has cost. */
  mend(): Promise<number>;
}

/** A machine that loses what it is sent. */
interface Deaf {
  /** The command that runs another in its network. */
  readonly argv: (argv: readonly string[]) => string[];
  /** The packets that it loses, as a condition of nft. */
  readonly packets: string;
}

const machines = {
  agent: { argv: agentNetworkArgv, packets: `tcp sport ${agentAddresses.sshPort}` },
  target: { argv: networkArgv, packets: `tcp dport ${agentAddresses.sshPort}` },
} as const;

/** Drops packets between the agent and its target's sshd on their way into either, without a word to anybody, and nothing else:
 *  the API server and the agent reach each other as before. @param which a condition of nft that they meet. */
function dropInto({ layout }: Cluster, deaf: readonly (keyof typeof machines)[], which = ""): Promise<Harm> {
  const into = deaf.map((machine) => {
    const { argv, packets } = machines[machine];
    return { argv: (command: readonly string[]) => argv(layout, command), packets };
  });
  return dropPackets(into, which);
}

/** Drops packets on their way into these machines. @param which a further condition of nft that they meet. */
export async function dropPackets(deaf: readonly Deaf[], which: string): Promise<Harm> {
  const nft = ({ argv }: Deaf, command: readonly string[], stdin = "") => must(argv(["nft", ...command]), { stdin });
  for (const machine of deaf)
    await nft(
      machine,
      ["--file", "-"],
      `table ip harm {
        chain in { type filter hook input priority 0; ${machine.packets} ${which} counter drop; }
      }`,
    );
  const harmed = new Set(deaf);
  const mend = async (): Promise<number> => {
    let dropped = 0;
    for (const machine of harmed) {
      harmed.delete(machine);
      const rules = await nft(machine, ["list", "table", "ip", "harm"]);
      dropped += Number(/counter packets (\d+)/.exec(rules)?.[1]);
      await nft(machine, ["delete", "table", "ip", "harm"]);
    }
    return dropped;
  };
  return { mend, [Symbol.asyncDispose]: async () => void (await mend()) };
}

/** Drops every packet between the agent and its target's sshd. */
export function cutSsh(cluster: Cluster): Promise<Harm> {
  return dropInto(cluster, ["agent", "target"]);
}

/** Cuts the connections that stand, for good; new ones can be made. */
export async function abandonSsh(cluster: Cluster): Promise<Harm> {
  const { stdout } = await cluster.runAtAgent(["ss", "-Htn", "dport", "=", `:${agentAddresses.sshPort}`]);
  const ports = [...stdout.matchAll(/:(\d+) +\S+ *$/gm)].map(([, port]) => port);
  if (ports.length === 0) throw new Error(`there is no connection to sshd:\n${stdout}`);
  const ends = `{ ${[agentAddresses.sshPort, ...ports].join(", ")} }`;
  return dropInto(cluster, ["agent", "target"], `tcp sport ${ends} tcp dport ${ends}`);
}

/** Drops what would reach one of the two, which goes on sending. */
export function deafenToSsh(cluster: Cluster, deaf: "agent" | "target"): Promise<Harm> {
  return dropInto(cluster, [deaf]);
}

/** Drops so many of a hundred packets, by chance, each way. */
export function loseSshPackets(cluster: Cluster, percent: number): Promise<Harm> {
  return dropInto(cluster, ["agent", "target"], `numgen random mod 100 < ${percent}`);
}

/** A slower way to the target's sshd. */
export interface SlowWay extends AsyncDisposable {
  /** Fields of the ssh provider by which an agent takes it. */
  readonly providerConfig: { readonly host: string; readonly port: number };
}

/** Opens a way on which a packet and its answer take so long. */
export async function openSlowWay(cluster: Cluster, roundTripMs: number): Promise<SlowWay> {
  const spawn = (argv: readonly string[]) => cluster.spawnAtAgent(argv, { stdio: ["ignore", "pipe", "inherit"] });
  const relay = await startSlowRelay(spawn, roundTripMs, "127.0.0.1");
  return { ...relay, providerConfig: { host: "127.0.0.1", port: relay.port } };
}

/** Starts what leads to the target's sshd with such a delay. @param spawn starts it where it shall listen, at `address`; its output is
 *  piped. */
export async function startSlowRelay(
  spawn: (argv: readonly string[]) => ChildProcess,
  roundTripMs: number,
  address: string,
): Promise<AsyncDisposable & { readonly port: number }> {
  const { target, sshPort } = agentAddresses;
  const argv = [process.execPath, join(import.meta.dirname, "slow-relay.ts"), target, String(sshPort)];
  const relay = spawn([...argv, String(roundTripMs / 2), address]);
  const port = Number(await firstLine(relay));
  return {
    port,
    async [Symbol.asyncDispose]() {
      const ended = once(relay, "exit");
      if (relay.kill("SIGKILL")) await ended;
    },
  };
}
