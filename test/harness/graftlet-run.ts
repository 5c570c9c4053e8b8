import { readFileSync } from "node:fs";
import { type Agent, graftletProgram } from "./agent.ts";
import type { Cluster } from "./cluster.ts";
import { type Finished, run } from "./processes.ts";

/** How a graftlet that was not to run ended. */
export interface Refusal {
  readonly code: number;
  /** What it said but for its log lines. */
  readonly said: readonly string[];
}

/** Runs graftlet on the cluster's machine to its end, which is expected within ten seconds or so. */
export async function runToEnd(cluster: Cluster, args: readonly string[]): Promise<Refusal> {
  const { code, stdout, stderr } = await cluster.runInside([process.execPath, graftletProgram(), ...args], {
    timeoutMs: 60_000,
  });
  const said = `${stdout}${stderr}`.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  return { code, said };
}

/** The command line of a graftlet that runs: how its program is started, and the flags after it. Verbs go between. */
export function commandLine({ pid }: Pick<Agent, "pid">): Readonly<Record<"program" | "flags", readonly string[]>> {
  const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").filter(Boolean);
  const at = words.indexOf(graftletProgram()) + 1;
  return { program: words.slice(0, at), flags: words.slice(at) };
}

/** Runs `graftlet doctor` with the configuration of an agent, and beside it, as who may do everything in the cluster. */
export function runDoctor(cluster: Cluster, agent: Pick<Agent, "pid">, timeoutMs: number): Promise<Finished> {
  const { program, flags } = commandLine(agent);
  const own = flags.filter((flag) => !flag.startsWith("--kubeconfig"));
  const argv = [...program, "doctor", ...own, `--kubeconfig=${cluster.adminKubeconfig}`];
  return run(["nsenter", `--target=${agent.pid}`, "--mount", "--uts", "--net", "--", ...argv], { timeoutMs });
}
