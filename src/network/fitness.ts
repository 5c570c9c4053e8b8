import type { Duplex } from "node:stream";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { Host, HostListener } from "../seams/host.ts";
import { relayPrograms } from "./relay-program.ts";
import { rulesText } from "./rules.ts";
import { type Argv, command } from "../seams/command.ts";

/** Why a cluster has nothing that the link could carry. */
export const withoutIPv4 = "the cluster has no Services with IPv4, which alone the link carries";

/** Rules that lead nothing anywhere. */
const noRules = { port: 1, pods: [], tcp: [], udp: [], addresses: [] };

/** What a target lacks for a way of its pods into the cluster, a sentence each with the remedy. It is looked for, and nothing is changed.
 *  @throws unavailable when the target is out of reach. */
export async function wayObstacles(
  { run }: Pick<Host, "run">,
  rootDir: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const works = async (argv: Argv, stdin = "") => {
    try {
      return (await run(argv, { stdin, signal })).code === 0;
    } catch (error) {
      if (hasCode(error, "not_found")) return false;
      throw error;
    }
  };
  const programs = relayPrograms("", []);
  const [rules, ...interpreters] = await Promise.all([
    works(command("nft", ["--check", ["--file", "-"]]), rulesText(rootDir, noRules, undefined)),
    ...programs.map(({ probe }) => works(probe)),
  ]);
  const names = programs.map(({ interpreter }) => interpreter).join(" nor ");
  return [
    ...(rules
      ? []
      : [
          "nft does not work there: install nftables (the kernel has to have nft_fib_ipv4), and log in as root or with sudo",
        ]),
    ...(interpreters.includes(true) ? [] : [`there is neither ${names}: install one`]),
  ];
}

/** Listens at the target's end of the link, over what an earlier process has left there.
 *  @throws unimplemented where the target has no such end; permission_denied where its sshd allows none. */
export async function listenAt(
  host: Pick<Host, "listen" | "fs" | "forPods">,
  path: string,
  take: (connection: Duplex) => void,
  signal: AbortSignal,
): Promise<HostListener> {
  await host.fs.apply([{ do: "remove", path }], signal);
  const listener = await (host.forPods ?? host).listen?.({ unix: path }, take, signal);
  if (!listener) throw new CodedError("unimplemented", "nothing leads from the target back to graftlet");
  return listener;
}

/** The sentence of a target that lacks something; undefined for what may be mended by trying again. */
export function unfitness(error: unknown): string | undefined {
  const isUnfit = hasCode(error, "not_found", "failed_precondition", "permission_denied", "unimplemented");
  return isUnfit ? messageOf(error) : undefined;
}
