import { isProblem } from "../api/node-conditions.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Node, Pod } from "../objects.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { NodeWork, ReportedNode } from "./node.ts";
import type { Notes } from "./notes.ts";

/** A warning or an error of a node's log. */
interface LoggedError {
  /** RFC 3339: when it came last. */
  readonly at: string;
  readonly times: number;
  readonly message: string;
}

export interface PodReport {
  readonly namespace: string;
  readonly name: string;
  readonly phase: string;
  /** Why it does not run, in the words of its status. */
  readonly reason?: string;
}

/** A node of a process at one moment. */
export interface NodeReport {
  readonly name: string;
  readonly provider: string;
  readonly ready: boolean;
  /** Of the Node's Ready condition, or of what keeps the node from its start. */
  readonly reason: string;
  readonly message: string;
  /** Absent for a target that is graftlet's own machine, or is not opened yet. */
  readonly link?: { readonly up: boolean; readonly reason?: string; readonly message?: string };
  /** Conditions of the Node, beside Ready, that want attention. */
  readonly conditions: readonly { readonly type: string; readonly reason: string; readonly message: string }[];
  readonly pods: readonly PodReport[];
  /** The newest warnings and errors of its log, newest last. */
  readonly errors: readonly LoggedError[];
}

/** Warnings and errors of a node that a report has. */
const mostErrors = 10;

/** Report on a node, by its news. */
export function nodeReport(of: ReportedNode, notes: Pick<Notes, "all">): NodeReport {
  const { name, provider } = of;
  const [link, work] = [of.link(), of.work()];
  const way = typeof link === "object" ? { trouble: link.trouble() } : undefined;
  return {
    name,
    provider,
    ...readiness(work, way?.trouble),
    ...(way && { link: linkReport(way.trouble) }),
    conditions: conditionsOf(work?.node()),
    pods: work?.pods().map(podReport) ?? [],
    errors: notes
      .all()
      .filter(({ source, node }) => source === "log" && node === name)
      .slice(-mostErrors)
      .map(({ at, times, text }) => ({ at: rfc3339(at), times, message: text })),
  };
}

function readiness(
  work: NodeWork | undefined,
  trouble: LinkTrouble | undefined,
): Pick<NodeReport, "ready" | "reason" | "message"> {
  if (trouble) return { ready: false, ...trouble };
  if (!work) return { ready: false, reason: "Starting", message: "the node does not work yet" };
  if (work.alone) return { ready: true, reason: "StandsAlone", message: "there is no API server" };
  const ready = work.node()?.status?.conditions?.find(({ type }) => type === "Ready");
  if (!ready)
    return { ready: false, reason: "NotRegistered", message: "the API server shows no status of the Node yet" };
  return { ready: ready.status === "True", reason: ready.reason ?? "", message: ready.message ?? "" };
}

function linkReport(trouble: LinkTrouble | undefined): NonNullable<NodeReport["link"]> {
  return trouble ? { up: false, reason: trouble.reason, message: trouble.message } : { up: true };
}

function conditionsOf(node: Node | undefined): NodeReport["conditions"] {
  return (node?.status?.conditions ?? [])
    .filter((condition) => condition.type !== "Ready" && isProblem(condition))
    .map(({ type, reason = "", message = "" }) => ({ type, reason, message }));
}

function podReport({ metadata, status }: Pod): PodReport {
  const { namespace, name } = metadata;
  const waiting = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])].find(
    ({ state }) => state?.waiting?.reason !== undefined && state.waiting.reason !== "PodInitializing",
  );
  const reason = status?.reason ?? waiting?.state?.waiting?.reason;
  return { namespace, name, phase: status?.phase ?? "Pending", ...(reason !== undefined && { reason }) };
}
