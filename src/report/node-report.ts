import { isProblem } from "../api/node-conditions.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Node, Pod } from "../objects.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { NodeIntrospection, ReportedNode } from "./reported-node.ts";
import type { Notes } from "./notes.ts";

/** A warning or an error of a node's log. */
interface LoggedError {
  /** RFC 3339: last occurrence. */
  readonly at: string;
  readonly times: number;
  readonly message: string;
}

export interface PodReport {
  readonly namespace: string;
  readonly name: string;
  readonly phase: string;
  /** Reason why the pod does not run, from its status. */
  readonly reason?: string;
}

/** A snapshot of a node of a process. */
export interface NodeReport {
  readonly name: string;
  readonly provider: string;
  readonly ready: boolean;
  /** Reason of the Node's Ready condition, or why the node has not started. */
  readonly reason: string;
  readonly message: string;
  /** Absent for a target that is graftlet's own machine or not connected yet. */
  readonly link?: { readonly up: boolean; readonly reason?: string; readonly message?: string };
  /** Conditions of the Node, other than Ready, that need attention. */
  readonly conditions: readonly { readonly type: string; readonly reason: string; readonly message: string }[];
  readonly pods: readonly PodReport[];
  /** The newest warnings and errors of its log, newest last. */
  readonly errors: readonly LoggedError[];
}

/** Maximum number of warnings and errors in a report. */
const maxErrors = 10;

export function nodeReport(of: ReportedNode, notes: Pick<Notes, "all">): NodeReport {
  const { name, provider } = of;
  const [link, work] = [of.link(), of.introspection()];
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
      .slice(-maxErrors)
      .map(({ at, times, text }) => ({ at: rfc3339(at), times, message: text })),
  };
}

function readiness(
  work: NodeIntrospection | undefined,
  trouble: LinkTrouble | undefined,
): Pick<NodeReport, "ready" | "reason" | "message"> {
  if (trouble) return { ready: false, ...trouble };
  if (!work) return { ready: false, reason: "Starting", message: "the node is starting" };
  if (work.standalone) return { ready: true, reason: "Standalone", message: "standalone node without an API server" };
  const ready = work.node()?.status?.conditions?.find(({ type }) => type === "Ready");
  if (!ready) return { ready: false, reason: "NotRegistered", message: "the Node has no status in the API server yet" };
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
