import type { GuestNeighbour } from "../machines/guest-neighbour.ts";
import { agentAddresses } from "./agent-machine.ts";
import type { HelmLab } from "./helm-lab.ts";
import { addresses, networkArgv } from "./namespaces.ts";
import { must } from "./processes.ts";

/** A guest's kernel that holds back and loses what it forwards, until it is disposed of. */
export interface Netem extends AsyncDisposable {
  /** Packets lost so far. */
  lost(): Promise<number>;
}

/** Puts a guest between a lab's cluster and its machine, for good: it forwards each packet that they send each other. */
export async function leadThrough(guest: GuestNeighbour, { cluster, edge }: HelmLab): Promise<void> {
  const { target, agent } = agentAddresses;
  await guest.plug(cluster.layout, "edge0");
  await guest.must([
    "sh",
    "-ec",
    `sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0
     ip route add ${target} dev eth0`,
  ]);
  const away = `ip address add ${agent}/32 dev node0; ip route add ${target} via ${addresses.guest} src ${agent}`;
  await must(networkArgv(cluster.layout, ["sh", "-ec", away]));
  const back = [agent, addresses.node].map((host) => `ip route add ${host} via ${addresses.guest}`).join("; ");
  await must(networkArgv(edge.layout, ["sh", "-ec", `ip route add ${addresses.guest} dev home0; ${back}`]));
}

/** Has a guest's kernel take so long for a packet and its answer, and lose so many of a hundred, by chance, each way.
 *  @see https://man7.org/linux/man-pages/man8/tc-netem.8.html */
export async function slowDown(
  guest: GuestNeighbour,
  { roundTripMs, lost }: { readonly roundTripMs: number; readonly lost: number },
): Promise<Netem> {
  const qdisc = (verb: string, ...more: readonly string[]) =>
    guest.must(["tc", "-s", "qdisc", verb, "dev", "eth0", ...more]);
  await qdisc("replace", "root", "netem", "limit", "100000", "delay", `${roundTripMs / 2}ms`, "loss", `${lost}%`);
  return {
    lost: async () => Number(/dropped (\d+)/.exec(await qdisc("show", "root"))?.[1]),
    [Symbol.asyncDispose]: async () => void (await qdisc("delete", "root")),
  };
}
