import { createHash } from "node:crypto";
import { CodedError, hasCode, unlessGone } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { Belonging } from "../seams/runtime.ts";
import { command, commandWithoutDashes } from "../seams/command.ts";

/** Packets that the target's firewall leads to the relay. */
export interface Redirections {
  /** Port of the relay for connections. */
  readonly port: number;
  /** Addresses of this node's pods, sorted: nobody else's packets are touched. */
  readonly pods: readonly string[];
  /** Destinations of connections, as `address:port`, sorted. */
  readonly tcp: readonly string[];
  /** Destinations of datagrams with the relay's port for each, sorted. */
  readonly udp: readonly (readonly [to: string, port: number])[];
  /** Addresses of the cluster: what no rule leads to the relay is refused, and does not leave the machine. */
  readonly addresses: readonly string[];
}

/** Name of what a node has on its target for the way into the cluster, by its root directory: several nodes may be on one machine. */
export function wayName(rootDir: string): string {
  return `graftlet-${createHash("sha256").update(rootDir).digest("hex").slice(0, 10)}`;
}

/** Socket on the target that leads to graftlet. */
export function wayLink(rootDir: string): string {
  return `/run/${wayName(rootDir)}.sock`;
}

/** Command that fails when the rules are not there. */
export function rulesCheck(rootDir: string): readonly string[] {
  return ["nft", "list", "chain", "ip", wayName(rootDir), "prerouting"];
}

/** Input of nft that puts the rules in place of what stands, in one transaction: all of it, or what has changed since `before`. Empty
 *  when nothing has. Pure. */
export function rulesText(rootDir: string, now: Redirections, before: Redirections | undefined): string {
  const table = `ip ${wayName(rootDir)}`;
  const anew = before?.port !== now.port;
  const parts = [
    { name: "pods", of: (all: Redirections) => all.pods },
    { name: "connections", of: (all: Redirections) => all.tcp.map(key) },
    { name: "datagrams", of: (all: Redirections) => all.udp.map(([to, port]) => `${key(to)} : ${port}`) },
    { name: "cluster", of: (all: Redirections) => all.addresses },
  ] as const;
  const lines = anew ? frame(table, now.port) : [];
  for (const { name, of } of parts) {
    const elements = of(now).join(", ");
    if (!anew && before && elements === of(before).join(", ")) continue;
    if (!anew) lines.push(`flush ${name === "datagrams" ? "map" : "set"} ${table} ${name}`);
    if (elements !== "") lines.push(`add element ${table} ${name} { ${elements} }`);
  }
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

const key = (to: string) => to.replace(":", " . ");

function frame(table: string, port: number): string[] {
  return [
    `add table ${table}`,
    `delete table ${table}`,
    `table ${table} {
      set pods { type ipv4_addr; }
      set connections { type ipv4_addr . inet_service; }
      map datagrams { type ipv4_addr . inet_service : inet_service; }
      set cluster { type ipv4_addr; }
      chain prerouting {
        type nat hook prerouting priority dstnat - 1; policy accept;
        ip saddr @pods ip daddr . tcp dport @connections redirect to :${port}
        ip saddr @pods meta l4proto udp redirect to :ip daddr . udp dport map @datagrams
      }
      chain forward {
        type filter hook forward priority filter - 1; policy accept;
        ip saddr @pods ip daddr @cluster meta l4proto tcp reject with tcp reset
        ip saddr @pods ip daddr @cluster reject
      }
    }`,
  ];
}

/** Gives nft its input. @throws not_found when the target has no nft; failed_precondition in nft's words. */
export async function applyRules({ run }: Pick<Host, "run">, text: string, signal: AbortSignal): Promise<void> {
  const { code, stderr } = await run(command("nft", [["-f", "-"]]), { stdin: text, signal });
  if (code !== 0) throw new CodedError("failed_precondition", `nft: ${stderr.trim()}`);
}

/** Belongings of a node on its target for the way into the cluster, at most one: the rules, and the socket that they lead to in the
 *  end. */
export async function wayBelongings(
  host: Pick<Host, "run" | "fs">,
  rootDir: string,
  signal: AbortSignal,
): Promise<readonly Belonging[]> {
  const socket = wayLink(rootDir);
  const [rules, end] = await Promise.all([
    rulesStand(host, rootDir, signal),
    unlessGone(host.fs.lstat(socket, signal)),
  ]);
  if (!rules && !end) return [];
  const table = `ip ${wayName(rootDir)}`;
  return [
    {
      name: `firewall table ${wayName(rootDir)}`,
      async remove(until) {
        if (rules) await applyRules(host, `add table ${table}\ndelete table ${table}\n`, until);
        await host.fs.apply([{ do: "remove", path: socket }], until);
      },
    },
  ];
}

async function rulesStand({ run }: Pick<Host, "run">, rootDir: string, signal: AbortSignal): Promise<boolean> {
  try {
    const { code } = await run(commandWithoutDashes("nft", [], ["list", "table", "ip", wayName(rootDir)]), { signal });
    return code === 0;
  } catch (error) {
    if (hasCode(error, "not_found")) return false;
    throw error;
  }
}
