import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { programText } from "../lib/program-text.ts";
import type { Runnable } from "../lib/runnables.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";
import type { OwnedResource } from "../seams/runtime.ts";

type Runs = Pick<Host, "run">;

/** Interval between checks of the chains, milliseconds. */
const intervalMs = 60_000;

/** Creates the kubelet's iptables chains of both families, and again after a flush; without iptables on the target it does nothing.
 *  @see https://kubernetes.io/blog/2022/09/07/iptables-chains-not-api/ */
export function createIptablesChains({ host, clock, log }: ClockAndLog & { readonly host: Runs }): Runnable {
  return {
    name: "iptables-chains",
    async run(signal) {
      let reported: string | undefined;
      while (!signal.aborted) {
        try {
          // On a kernel without IPv6, the chains for IPv4 are created nevertheless.
          const results = await Promise.allSettled(
            programs.map((program) => runScript(host, "ensure", program, signal)),
          );
          const created = results.flatMap((result) => (result.status === "fulfilled" && result.value) || []);
          if (created.length > 0) log.info({ programs: created }, "created the kubelet's iptables chains");
          const failures = results.flatMap((result) =>
            result.status === "rejected" ? [messageOf(result.reason)] : [],
          );
          const why = failures.join("; ");
          if (why !== reported && why !== "" && !signal.aborted)
            log.warn({ why }, "cannot create the kubelet's iptables chains; retrying");
          reported = why;
          await clock.sleep(intervalMs, signal);
        } catch (error) {
          if (!signal.aborted) throw error;
        }
      }
    },
  };
}

const programs = ["iptables", "ip6tables"];

/** The chains on a target as one owned resource; empty if it has none. */
export async function ownedIptablesChains(host: Runs, signal: AbortSignal): Promise<OwnedResource[]> {
  const found = await Promise.all(programs.map((program) => runScript(host, "find", program, signal)));
  if (found.flat().length === 0) return [];
  return [
    {
      name: "iptables chains KUBE-IPTABLES-HINT, KUBE-FIREWALL and KUBE-KUBELET-CANARY",
      async remove(until) {
        for (const program of found.flat()) await runScript(host, "remove", program, until);
      },
    },
  ];
}

/** @throws failed_precondition with the program's error. */
async function runScript(
  host: Runs,
  action: "ensure" | "find" | "remove",
  program: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const text = programText("src/node/iptables-chains.sh");
  const { code, stdout, stderr } = await host.run(script(text, action, program), { signal });
  if (code !== 0) throw new CodedError("failed_precondition", `${program}: ${stderr.trim()}`);
  return stdout.split("\n").filter((line) => line !== "");
}
