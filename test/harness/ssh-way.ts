import { once } from "node:events";
import { join } from "node:path";
import { agentAddresses, agentNetworkArgv } from "./agent-machine.ts";
import type { Cluster } from "./cluster.ts";
import { must } from "./processes.ts";

/** Drops every packet between the agent and its target's sshd, without a word to either, and nothing else: the API server and the
 *  agent reach each other as before. @returns what lets them through again. */
export async function cutSsh({ layout }: Cluster): Promise<() => Promise<void>> {
  const nft = (rules: string) => must(agentNetworkArgv(layout, ["nft", "--file", "-"]), { stdin: rules });
  await nft(`
    table ip cut {
      chain in { type filter hook input priority 0; tcp sport ${agentAddresses.sshPort} drop; }
      chain out { type filter hook output priority 0; tcp dport ${agentAddresses.sshPort} drop; }
    }`);
  return async () => void (await nft("delete table ip cut"));
}

/** A slower way to the target's sshd. */
export interface SlowWay extends AsyncDisposable {
  /** Fields of the ssh provider by which an agent takes it. */
  readonly providerConfig: { readonly host: string; readonly port: number };
}

/** Opens a way on which a packet and its answer take so long. */
export async function openSlowWay(cluster: Cluster, roundTripMs: number): Promise<SlowWay> {
  const { target, sshPort } = agentAddresses;
  const argv = [process.execPath, join(import.meta.dirname, "slow-relay.ts"), target, String(sshPort)];
  const relay = cluster.spawnAtAgent([...argv, String(roundTripMs / 2)], { stdio: ["ignore", "pipe", "inherit"] });
  const [said] = (await once(relay.stdout ?? relay, "data")) as [Buffer];
  return {
    providerConfig: { host: "127.0.0.1", port: Number(said.toString()) },
    async [Symbol.asyncDispose]() {
      const ended = once(relay, "exit");
      if (relay.kill("SIGKILL")) await ended;
    },
  };
}
