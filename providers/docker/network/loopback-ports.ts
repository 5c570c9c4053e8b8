import type { ContainerInfo, PortMap } from "dockerode";
import { CodedError, hasCode, messageOf } from "../../../src/lib/errors.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import type { Host } from "../../../src/seams/host.ts";
import type { OwnedResource } from "../../../src/seams/runtime.ts";
import { sandboxType } from "../container/names.ts";
import { listOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";
import { type Argv, command } from "../../../src/seams/command.ts";

type LoopbackPortsDeps = Pick<DockerParts, "docker" | "nodeName" | "host">;

/** Makes host ports on the machine's loopback reachable from its other addresses. Docker serves such a port with a proxy, whereas
 *  CNI's portmap uses NAT. The machine drops packets without NAT, because kube-proxy and the kubelet add a rule that blocks
 *  loopback traffic from other addresses. Therefore each such port of a running sandbox gets a DNAT rule in `nat OUTPUT`, a chain
 *  for the machine's own packets only, with the node's name in a comment.
 *  @see https://github.com/kubernetes/kubernetes/issues/90259 */
export type LoopbackPorts = ReturnType<typeof createLoopbackPorts>;

export function createLoopbackPorts(parts: DockerParts) {
  const mutex = createSemaphore(1);
  const sync = async (signal: AbortSignal): Promise<void> => {
    const wanted = await desiredRules(parts, signal);
    try {
      await applyRules(parts.host, await currentRules(parts, signal), wanted, signal);
    } catch (error) {
      if (signal.aborted || wanted.length === 0) throw error;
      parts.log.warn(
        { why: messageOf(error), rules: wanted },
        "cannot set iptables rules; host ports on 127.0.0.0/8 are reachable from loopback addresses only",
      );
    }
  };
  return {
    /** Syncs the rules with the running sandboxes. Never fails: without rules the ports are reachable from loopback addresses only, which is
     *  logged. */
    sync: (signal: AbortSignal): Promise<void> =>
      mutex(() => sync(signal)).catch((err: unknown) =>
        parts.log.debug({ err }, "cannot update the iptables rules for host ports on 127.0.0.0/8"),
      ),
  };
}

/** True if a port is published on the loopback only. */
export function onLoopback(bindings: PortMap | null): boolean {
  return Object.values(bindings ?? {}).some((each) => (each ?? []).some(({ HostIp }) => isLoopbackHostIp(HostIp)));
}

export function isLoopbackHostIp(hostIp: string | undefined): boolean {
  return hostIp?.startsWith("127.") ?? false;
}

/** Returns the rules as one owned resource; empty if there are no rules, or they cannot be read. */
export async function loopbackRules(parts: LoopbackPortsDeps, signal: AbortSignal): Promise<OwnedResource[]> {
  const rules = await currentRules(parts, signal).catch((error: unknown) => {
    if (hasCode(error, "not_found", "failed_precondition")) return [];
    throw error;
  });
  if (rules.length === 0) return [];
  return [
    {
      name: `${rules.length} iptables rule${rules.length > 1 ? "s" : ""} for host ports on 127.0.0.0/8`,
      remove: async (stop) => applyRules(parts.host, await currentRules(parts, stop), [], stop),
    },
  ];
}

async function desiredRules(parts: LoopbackPortsDeps, signal: AbortSignal): Promise<readonly string[]> {
  const sandboxes = await listOwn(parts, sandboxType, {}, signal);
  const rules = sandboxes
    .filter(({ State }) => State === "running")
    .flatMap((each) => sandboxRules(parts.nodeName, each));
  return [...new Set(rules)];
}

/** Returns a sandbox's rules in the format of `iptables -S`. */
function sandboxRules(nodeName: string, { Ports, HostConfig, NetworkSettings }: ContainerInfo): string[] {
  const networks = Object.values(NetworkSettings?.Networks ?? {});
  const address = (networks.find(({ NetworkID }) => NetworkID === HostConfig.NetworkMode) ?? networks[0])?.IPAddress;
  if (!address) return [];
  return Ports.filter(({ IP, PublicPort }) => isLoopbackHostIp(IP) && PublicPort > 0).map(
    ({ IP, PublicPort, PrivatePort, Type }) =>
      `-A OUTPUT ! -s 127.0.0.0/8 -d ${IP}/32 -p ${Type} -m ${Type} --dport ${PublicPort} ` +
      `-m comment ${comment(nodeName)} -j DNAT --to-destination ${address}:${PrivatePort}`,
  );
}

/** Returns the comment of the node's rules, shortened to iptables' limit of 255 characters. */
function comment(nodeName: string): string {
  return `--comment "${`${nodeLabel}=${nodeName}`.slice(0, 255)}"`;
}

/** Reads this node's current rules.
 *  @throws CodedError not_found when the machine has no iptables, failed_precondition with its message. */
async function currentRules({ host, nodeName }: LoopbackPortsDeps, signal: AbortSignal): Promise<readonly string[]> {
  const lines = await iptables(host, command("iptables", [lockWaitArgs, ["-t", "nat"], ["-S", "OUTPUT"]]), "", signal);
  return lines.split("\n").filter((line) => line.includes(`${comment(nodeName)} `));
}

/** Applies all changes atomically. @throws like `currentRules`. */
async function applyRules(
  host: Host,
  current: readonly string[],
  wanted: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const changes = [
    ...current.filter((rule) => !wanted.includes(rule)).map((rule) => rule.replace(/^-A/, "-D")),
    ...wanted.filter((rule) => !current.includes(rule)),
  ];
  if (changes.length === 0) return;
  const input = ["*nat", ...changes, "COMMIT", ""].join("\n");
  await iptables(host, command("iptables-restore", [lockWaitArgs, "--noflush"]), input, signal);
}

/** Seconds to wait for iptables' lock. @see https://manpages.debian.org/bookworm/iptables/iptables-restore.8 */
const lockWaitArgs = ["-w", "5"] as const;

async function iptables(host: Host, argv: Argv, stdin: string, signal: AbortSignal): Promise<string> {
  const { code, stdout, stderr } = await host.run(argv, { stdin, signal });
  if (code === 0) return stdout;
  throw new CodedError("failed_precondition", `${argv[0]} failed: ${stderr.trim() || `exit code ${code}`}`);
}
