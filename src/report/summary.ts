import { isProblem } from "../api/node-conditions.ts";
import type { LoggedError } from "../lib/recent-errors.ts";
import type { Node, Pod, PodStatus } from "../objects.ts";
import type { LinkTrouble } from "../seams/provider.ts";

/** A node at work, for reports. */
export interface NodeAtWork {
  /** The Node as the API server last showed it; undefined where there is none. */
  node(): Node | undefined;
  /** There is no API server: no Node says whether the node is ready. */
  readonly alone: boolean;
  pods(): readonly { readonly pod: Pod; readonly status: PodStatus | undefined }[];
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

/** What a node says of itself while it starts, works and stops. */
export interface NodeTelling {
  /** @param link undefined for graftlet's own machine */
  opened(link: { trouble(): LinkTrouble | undefined } | undefined): void;
  /** @param work undefined when the node does not work any more */
  works(work: NodeAtWork | undefined): void;
}

export interface Reported extends NodeTelling {
  report(): NodeReport;
}

/** Keeps what is to be said of a node. */
export function createNodeReport(
  { name, provider }: Pick<NodeReport, "name" | "provider">,
  errors: () => readonly LoggedError[],
): Reported {
  let link: { trouble(): LinkTrouble | undefined } | undefined;
  let work: NodeAtWork | undefined;
  return {
    opened: (given) => void (link = given),
    works: (given) => void (work = given),
    report: () => ({
      name,
      provider,
      ...readiness(work, link?.trouble()),
      ...(link && { link: linkReport(link.trouble()) }),
      conditions: conditionsOf(work?.node()),
      pods: work?.pods().map(podReport) ?? [],
      errors: errors(),
    }),
  };
}

function readiness(
  work: NodeAtWork | undefined,
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

function podReport({ pod, status }: { readonly pod: Pod; readonly status: PodStatus | undefined }): PodReport {
  const { namespace, name } = pod.metadata;
  const waiting = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])].find(
    ({ state }) => state?.waiting?.reason !== undefined && state.waiting.reason !== "PodInitializing",
  );
  const reason = status?.reason ?? waiting?.state?.waiting?.reason;
  return { namespace, name, phase: status?.phase ?? "Pending", ...(reason !== undefined && { reason }) };
}
