import type { Duplex } from "node:stream";
import { CodedError, hasCode, ignoreNotFound, messageOf } from "../lib/errors.ts";
import type { Host, HostListener } from "../seams/host.ts";
import { relayPrograms } from "./relay.ts";
import { rulesText } from "./rules.ts";
import { type Argv, command } from "../seams/command.ts";

/** Why the tunnel is of no use in a cluster without IPv4 Services. */
export const noIPv4Services = "the cluster has no IPv4 Services, and the service tunnel forwards IPv4 only";

/** Rules that redirect nothing. */
const emptyRules = { port: 1, pods: [], tcp: [], udp: [], addresses: [] };

/** Checks whether a target supports the service tunnel, without changing it.
 *  @returns a sentence with the remedy for each failure.
 *  @throws unavailable when the target is unreachable. */
export async function preflightFailures(
  { run }: Pick<Host, "run">,
  rootDir: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const works = async (argv: Argv, stdin = "") => {
    return (await ignoreNotFound(run(argv, { stdin, signal })))?.code === 0;
  };
  const programs = relayPrograms("", []);
  const [rules, ...interpreters] = await Promise.all([
    works(command("nft", ["--check", ["--file", "-"]]), rulesText(rootDir, emptyRules, undefined)),
    ...programs.map(({ probe }) => works(probe)),
  ]);
  const names = programs.map(({ interpreter }) => interpreter).join(" nor ");
  return [
    ...(rules
      ? []
      : [
          "nft does not work on the target: install nftables (the kernel needs nft_fib_ipv4), and log in as root or with sudo",
        ]),
    ...(interpreters.includes(true) ? [] : [`the target has neither ${names}: install one`]),
  ];
}

/** Listens on the target, replacing a stale socket.
 *  @throws unimplemented where the target cannot listen; permission_denied where its sshd forbids it. */
export async function listenOnTarget(
  host: Pick<Host, "listen" | "fs" | "forPods">,
  path: string,
  onConnection: (connection: Duplex) => void,
  signal: AbortSignal,
): Promise<HostListener> {
  await host.fs.apply([{ kind: "remove", path }], signal);
  const listener = await (host.forPods ?? host).listen?.({ unix: path }, onConnection, signal);
  if (!listener)
    throw new CodedError("unimplemented", "connections from the target back to graftlet are not supported");
  return listener;
}

/** Returns the message of an error that means that the target does not meet a requirement; undefined for errors that a retry may
 *  fix. */
export function preflightFailure(error: unknown): string | undefined {
  const isUnfit = hasCode(error, "not_found", "failed_precondition", "permission_denied", "unimplemented");
  return isUnfit ? messageOf(error) : undefined;
}
