import { systemClock } from "../lib/clock.ts";
import type { OptionsOf } from "../config/parse-result.ts";
import { CodedError } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { FleetReport, MachineReport, ReplicaReport } from "../report/fleet-report.ts";
import type { NodeReport, PodReport } from "../report/node-report.ts";
import { type ProcessReport, requestStatus } from "../process/status-socket.ts";
import { type CommandContext, printJson } from "./terminal.ts";

type StatusOptions = OptionsOf<"status"> & Pick<CommandContext, "terminal" | "signal">;

/** Prints the state of the nodes of the process on this machine and, if these are objects, of the release's other machines.
 *  @returns true if all printed nodes of the process are ready, or the machine that `node` names.
 *  @throws CodedError, one sentence, if no process responds, or neither it nor its release has such a node. */
export async function runStatus({ socket, node, output, terminal, signal }: StatusOptions): Promise<boolean> {
  const all = await requestStatus(socket, systemClock(), signal);
  const report = node === undefined ? all : aboutNode(all, node);
  if (output === "json") printJson(terminal, report);
  else for (const line of statusLines(report)) terminal.print(line);
  const shown = node === undefined || report.nodes.length > 0 ? report.nodes : (report.fleet?.machines ?? []);
  return shown.every(({ ready }) => ready);
}

/** Reduces a report to a node of the process, or to a machine that the process does not serve. @throws CodedError if it has neither. */
function aboutNode({ fleet, ...all }: ProcessReport, node: string): ProcessReport {
  const nodes = all.nodes.filter(({ name }) => name === node);
  if (nodes.length > 0) return { ...all, nodes };
  const machines = fleet?.machines.filter(({ name }) => name === node) ?? [];
  if (fleet && machines.length > 0) return { ...all, nodes, fleet: { ...fleet, machines } };
  const names = [...all.nodes, ...(fleet?.machines ?? [])].map(({ name }) => name).join(", ");
  throw new CodedError("not_found", `--node is "${node}": the process has no such node; use one of ${names}`);
}

/** Maximum number of errors printed per node. */
const maxErrors = 3;

/** Formats the report as text: a line for the process, one for each node, and its problems below; then the release. Pure. */
export function statusLines({ version, kubernetes, pid, since, at, nodes, fleet }: ProcessReport): string[] {
  const up = goDuration(Math.max(0, Math.floor((Date.parse(at) - Date.parse(since)) / 1_000)) * 1_000);
  return [
    `graftlet ${version} (Kubernetes ${kubernetes}), process ${pid}, up ${up}`,
    ...nodes.flatMap(nodeLines),
    ...(fleet ? fleetLines(fleet) : []),
  ];
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

/** The release: its replicas, and the machines that the process does not serve. */
function fleetLines({ replica: own, current, replicas, machines }: FleetReport): string[] {
  const replicaLine = ({ name, leaving, machines: owned }: ReplicaReport) =>
    `  ${name}${name === own ? " (this one)" : ""}: ${counted(owned, "machine")}${leaving ? ", shutting down" : ""}`;
  return [
    "",
    `replicas of the release${current ? "" : ", as last known because the API server does not answer"}:`,
    ...replicas.map(replicaLine),
    ...(machines.length > 0 ? ["", "other machines of the release:", ...machines.flatMap(machineLines)] : []),
  ];
}

function machineLines({ name, owner, ready, reason, message, address, pods }: MachineReport): string[] {
  const facts = [
    `${ready ? "ready" : "NOT READY"} (${owner === undefined ? "served by nobody" : `served by ${owner}`})`,
    ...(pods === undefined ? [] : [counted(pods, "pod")]),
    ...(address === undefined ? [] : [address]),
  ];
  return [`  ${name}: ${facts.join(", ")}`, ...(ready ? [] : [`    ${reason}: ${message}`])];
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function podCounts(pods: readonly PodReport[]): string {
  const counts = new Map<string, number>();
  for (const { phase } of pods) counts.set(phase, (counts.get(phase) ?? 0) + 1);
  const each = [...counts].map(([phase, count]) => `${count} ${phase}`).join(", ");
  return `${counted(pods.length, "pod")}${each === "" ? "" : ` (${each})`}`;
}
