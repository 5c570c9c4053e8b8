import { systemClock } from "../lib/clock.ts";
import type { OptionsOf } from "../config/parse-result.ts";
import { CodedError } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { NodeReport, PodReport } from "../report/node-report.ts";
import { type ProcessReport, requestStatus } from "../process/status-socket.ts";
import { type CommandContext, printJson } from "./terminal.ts";

type StatusOptions = OptionsOf<"status"> & Pick<CommandContext, "terminal" | "signal">;

/** Prints the state of the nodes of the process on this machine.
 *  @returns true if all printed nodes are ready.
 *  @throws CodedError, one sentence, if no process responds, or it has no such node. */
export async function runStatus({ socket, node, output, terminal, signal }: StatusOptions): Promise<boolean> {
  const all = await requestStatus(socket, systemClock(), signal);
  const nodes = all.nodes.filter(({ name }) => node === undefined || name === node);
  if (node !== undefined && nodes.length === 0) {
    const names = all.nodes.map(({ name }) => name).join(", ");
    throw new CodedError("not_found", `--node is "${node}": the process has no such node; use one of ${names}`);
  }
  const report = { ...all, nodes };
  if (output === "json") printJson(terminal, report);
  else for (const line of statusLines(report)) terminal.print(line);
  return nodes.every(({ ready }) => ready);
}

/** Maximum number of errors printed per node. */
const maxErrors = 3;

/** Formats the report as text: a line for the process, one for each node, and its problems below. Pure. */
export function statusLines({ version, kubernetes, pid, since, at, nodes }: ProcessReport): string[] {
  const up = goDuration(Math.max(0, Math.floor((Date.parse(at) - Date.parse(since)) / 1_000)) * 1_000);
  return [`graftlet ${version} (Kubernetes ${kubernetes}), process ${pid}, up ${up}`, ...nodes.flatMap(nodeLines)];
}

function nodeLines(node: NodeReport): string[] {
  const { name, ready, reason, message, link, conditions, pods, errors } = node;
  const way = link === undefined ? node.provider : `${node.provider}, link ${link.up ? "up" : "down"}`;
  const odd = pods.filter(({ phase }) => phase !== "Running" && phase !== "Succeeded");
  return [
    `${name}: ${ready ? "ready" : "NOT READY"} (${way}), ${podCounts(pods)}`,
    ...(ready ? [] : [`  ${reason}: ${message}`]),
    ...conditions.map((one) => `  ${one.type}: ${one.reason}: ${one.message}`),
    ...odd.map(
      (pod) => `  pod ${pod.namespace}/${pod.name}: ${pod.phase}${pod.reason === undefined ? "" : `, ${pod.reason}`}`,
    ),
    ...errors
      .slice(-maxErrors)
      .map(({ at, times, message: what }) => `  ${at} ${what}${times > 1 ? ` (${times} times)` : ""}`),
  ];
}

function podCounts(pods: readonly PodReport[]): string {
  const counts = new Map<string, number>();
  for (const { phase } of pods) counts.set(phase, (counts.get(phase) ?? 0) + 1);
  const each = [...counts].map(([phase, count]) => `${count} ${phase}`).join(", ");
  return `${pods.length} ${pods.length === 1 ? "pod" : "pods"}${each === "" ? "" : ` (${each})`}`;
}
