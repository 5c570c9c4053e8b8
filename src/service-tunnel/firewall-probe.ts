import { ignoreNotFound } from "../lib/errors.ts";
import { programText } from "../lib/program-text.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";
import type { Service } from "../objects.ts";
import type { Protocol } from "./gate.ts";
import { type Redirections, tunnelName } from "./rules.ts";

/** What a pod connects to, as `address:port`. */
export interface ProbeDestinations {
  readonly tcp: string;
  /** Absent if no Service has UDP ports. */
  readonly udp?: string | undefined;
}

/** The protocols that the target's firewall blocks between its pods and the relay: none if the tunnel is open; undefined if that could
 *  not be determined. */
export type BlockedProtocols = readonly Protocol[] | undefined;

/** Time limit of the probe, milliseconds: four seconds for its connections, the rest for a slow machine. */
const timeoutMs = 20_000;
const maxOutputBytes = 1024;

/** Connects to the tunnel from the network namespace of a pod, which nothing else on the target is like: firewalls match addresses and
 *  interfaces. The namespace is that of a process whose routing table has the pod's address, so it does not depend on the runtime.
 *
 *  Neither attempt reaches a Service's pods if the destination is the cluster's DNS: the relay itself answers the datagram, and a
 *  connection counts as soon as the kernel accepts it for the relay. Traffic that fails is blocked by a firewall only if the tunnel's rules
 *  counted it on its way in. Without a pod's process, `nsenter`, or rules, the result is undefined.
 *
 *  The script prints `PROTOCOL open` or `PROTOCOL blocked` for each, and `PROTOCOL arrived` if the rules counted it.
 *  @param pod its IPv4 address.
 *  @throws deadline_exceeded; unavailable when the target is unreachable. */
export async function probeFirewall(
  { run }: Pick<Host, "run">,
  rootDir: string,
  pod: string,
  { tcp, udp }: ProbeDestinations,
  signal: AbortSignal,
): Promise<BlockedProtocols> {
  const pattern = pod.replaceAll(".", String.raw`\.`);
  const programs = [programText("src/service-tunnel/probe.py"), programText("src/service-tunnel/probe.pl")];
  const to = udp === undefined ? [tcp] : [tcp, udp];
  const probe = script(programText("src/service-tunnel/probe.sh"), tunnelName(rootDir), pattern, ...programs, ...to);
  const ran = await ignoreNotFound(run(probe, { timeoutMs, maxOutputBytes, signal }));
  return blockedProtocols(ran?.stdout ?? "");
}

/** Parses the output of the script. Pure. */
export function blockedProtocols(output: string): BlockedProtocols {
  const lines = new Set(output.split("\n"));
  const protocols = ["tcp", "udp"] as const;
  const blocked = protocols.filter((protocol) => lines.has(`${protocol} blocked`));
  const lost = blocked.filter((protocol) => lines.has(`${protocol} arrived`));
  if (lost.length > 0) return lost;
  return blocked.length === 0 && lines.has("tcp open") ? [] : undefined;
}

/** Chooses what the probe connects to: the cluster's DNS, or else the API server, to which an unused connection means nothing. Pure.
 *  @returns undefined if neither is among the destinations. */
export function probeDestinations(
  { tcp, udp }: Pick<Redirections, "tcp" | "udp">,
  services: readonly Service[] = [],
): ProbeDestinations | undefined {
  const datagrams = udp.map(([to]) => to);
  const dns = datagrams.find((to) => to.endsWith(":53")) ?? datagrams[0];
  const apiServer = services.find(
    ({ metadata: { namespace, name } }) => `${namespace}/${name}` === "default/kubernetes",
  );
  const [to] = [dns, `${apiServer?.spec?.clusterIP}:${apiServer?.spec?.ports?.[0]?.port}`].filter(
    (each) => each !== undefined && tcp.includes(each),
  );
  return to === undefined ? undefined : { tcp: to, udp: dns };
}
