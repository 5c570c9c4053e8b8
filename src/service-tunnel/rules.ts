import { createHash } from "node:crypto";
import { CodedError, hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { OwnedResource } from "../seams/runtime.ts";
import { command, commandWithoutDashes } from "../seams/command.ts";

/** Traffic that the target's firewall redirects to the relay. */
export interface Redirections {
  /** The relay's port for TCP connections. */
  readonly port: number;
  /** Addresses of this node's pods, sorted; other traffic is not touched. */
  readonly pods: readonly string[];
  /** TCP destinations as `address:port`, sorted. */
  readonly tcp: readonly string[];
  /** UDP destinations with the relay's port for each, sorted. */
  readonly udp: readonly (readonly [to: string, port: number])[];
  /** Cluster addresses: traffic to them that no rule redirects is rejected and does not leave the machine. */
  readonly addresses: readonly string[];
  /** IPv6 is not forwarded: traffic from these pods to these addresses is rejected. Absent if there are no such pods or
   *  addresses. */
  readonly ipv6?: { readonly pods: readonly string[]; readonly addresses: readonly string[] };
}

/** Name of a node's tunnel resources on its target, derived from its root directory, as a machine may have several nodes. */
export function tunnelName(rootDir: string): string {
  return `graftlet-${createHash("sha256").update(rootDir).digest("hex").slice(0, 10)}`;
}

/** Path of the socket on the target that is forwarded to graftlet. */
export function tunnelSocket(rootDir: string): string {
  return `/run/${tunnelName(rootDir)}.sock`;
}

/** Returns the command that fails if the rules are missing. */
export function rulesCheck(rootDir: string): readonly string[] {
  return ["nft", "list", "chain", "ip", tunnelName(rootDir), "prerouting"];
}

/** Returns nft input that replaces the installed rules in one transaction: all of them, or only what has changed since `before`.
 *  Empty if nothing has changed. Pure.
 *
 *  A packet with a pod's address counts as the pod's only if it arrived on the interface to which the machine routes that pod
 *  (`fib`): other machines on the network may forge the address. The relay's ports accept only redirected traffic; the machine's
 *  own outgoing connections from such a port, as NFS opens them, are not affected. Redirected traffic is counted before the machine's own
 *  filters see it (firewall-probe.ts), whatever its connection's state: a pod's new connection may have the port of one that ended, which
 *  the kernel still tracks. */
export function rulesText(rootDir: string, now: Redirections, before: Redirections | undefined): string {
  const table = `ip ${tunnelName(rootDir)}`;
  const recreate = before?.port !== now.port;
  const parts = [
    { name: "pods", of: (all: Redirections) => all.pods },
    { name: "connections", of: (all: Redirections) => all.tcp.map(nftElement) },
    { name: "datagrams", of: (all: Redirections) => all.udp.map(([to, port]) => `${nftElement(to)} : ${port}`) },
    { name: "ports", of: (all: Redirections) => all.udp.map(([, port]) => `${port}`) },
    { name: "cluster", of: (all: Redirections) => all.addresses },
  ] as const;
  const lines = recreate ? [...deleteTable("ip", rootDir), ipv4Table(table, now.port)] : [];
  for (const { name, of } of parts) {
    const elements = of(now).join(", ");
    if (!recreate && before && elements === of(before).join(", ")) continue;
    if (!recreate) lines.push(`flush ${name === "datagrams" ? "map" : "set"} ${table} ${name}`);
    if (elements !== "") lines.push(`add element ${table} ${name} { ${elements} }`);
  }
  const refusal = ipv6RejectTable(rootDir, now);
  if (refusal !== (before ? ipv6RejectTable(rootDir, before) : ""))
    lines.push(...deleteTable("ip6", rootDir), ...(refusal === "" ? [] : [refusal]));
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

/** Returns the IPv6 table. It is empty if there is nothing to reject, as a kernel may not support it. */
function ipv6RejectTable(rootDir: string, { ipv6 }: Redirections): string {
  if (!ipv6 || ipv6.pods.length === 0 || ipv6.addresses.length === 0) return "";
  return `table ip6 ${tunnelName(rootDir)} {
      set pods { type ipv6_addr; elements = { ${ipv6.pods.join(", ")} }; }
      set cluster { type ipv6_addr; elements = { ${ipv6.addresses.join(", ")} }; }
      chain forward {
        type filter hook forward priority filter - 1; policy accept;
        ip6 saddr @pods ip6 daddr @cluster meta l4proto tcp reject with tcp reset
        ip6 saddr @pods ip6 daddr @cluster reject
      }
    }`;
}

/** Returns the lines that delete a table, whether it exists or not. */
function deleteTable(family: "ip" | "ip6", rootDir: string): string[] {
  const table = `${family} ${tunnelName(rootDir)}`;
  return [`add table ${table}`, `delete table ${table}`];
}

const nftElement = (to: string) => to.replace(":", " . ");

function ipv4Table(table: string, port: number): string {
  return `table ${table} {
      set pods { type ipv4_addr; }
      set connections { type ipv4_addr . inet_service; }
      map datagrams { type ipv4_addr . inet_service : inet_service; }
      set cluster { type ipv4_addr; }
      set ports { type inet_service; }
      chain prerouting {
        type nat hook prerouting priority dstnat - 1; policy accept;
        fib saddr . iif oif missing return
        ip saddr @pods ip daddr . tcp dport @connections redirect to :${port}
        ip saddr @pods meta l4proto udp redirect to :ip daddr . udp dport map @datagrams
      }
      chain input {
        type filter hook input priority filter - 1; policy accept;
        ct state new tcp dport ${port} ct status ! dnat reject with tcp reset
        ct state new udp dport @ports ct status ! dnat drop
        ct status dnat tcp dport ${port} tcp flags & (syn | ack) == syn counter
        ct status dnat udp dport @ports counter
      }
      chain forward {
        type filter hook forward priority filter - 1; policy accept;
        ip saddr @pods ip daddr @cluster meta l4proto tcp reject with tcp reset
        ip saddr @pods ip daddr @cluster reject
      }
    }`;
}

/** Runs nft with this input. @throws not_found when the target has no nft; failed_precondition with nft's error. */
export async function applyRules({ run }: Pick<Host, "run">, text: string, signal: AbortSignal): Promise<void> {
  const { code, stderr } = await run(command("nft", [["-f", "-"]]), { stdin: text, signal });
  if (code !== 0) throw new CodedError("failed_precondition", `nft: ${stderr.trim()}`);
}

/** Returns the resources of a node's tunnel on its target: at most one, which comprises the rules and the relay's socket. */
export async function ownedTunnelResources(
  host: Pick<Host, "run" | "fs">,
  rootDir: string,
  signal: AbortSignal,
): Promise<readonly OwnedResource[]> {
  const socket = tunnelSocket(rootDir);
  const [rules, rulesIPv6, end] = await Promise.all([
    tableExists(host, "ip", rootDir, signal),
    tableExists(host, "ip6", rootDir, signal),
    ignoreNotFound(host.fs.lstat(socket, signal)),
  ]);
  if (!rules && !rulesIPv6 && !end) return [];
  const gone = [...(rules ? deleteTable("ip", rootDir) : []), ...(rulesIPv6 ? deleteTable("ip6", rootDir) : [])];
  return [
    {
      name: `firewall table ${tunnelName(rootDir)}`,
      async remove(until) {
        if (gone.length > 0) await applyRules(host, `${gone.join("\n")}\n`, until);
        await host.fs.apply([{ kind: "remove", path: socket }], until);
      },
    },
  ];
}

async function tableExists(
  { run }: Pick<Host, "run">,
  family: "ip" | "ip6",
  rootDir: string,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const { code } = await run(commandWithoutDashes("nft", [], ["list", "table", family, tunnelName(rootDir)]), {
      signal,
    });
    return code === 0;
  } catch (error) {
    if (hasCode(error, "not_found")) return false;
    throw error;
  }
}
