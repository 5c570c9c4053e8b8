/** Every path of the kubelet API. Which subresource of nodes a caller needs hangs on the area that a path lies in and on
 *  nothing else; a path in no area needs `proxy`.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */

/** Subresources tried in order; the first that the caller may use is enough. Areas that are not served yet are here all the
 *  same: what does not exist is hidden by the same rules. */
const areas: ReadonlyMap<string, readonly string[]> = new Map([
  ["pods", ["pods", "proxy"]],
  ["runningpods", ["pods", "proxy"]],
  ["healthz", ["healthz", "proxy"]],
  ["configz", ["configz", "proxy"]],
  ["flagz", ["configz"]],
  ["statusz", ["statusz"]],
  ["stats", ["stats"]],
  ["metrics", ["metrics"]],
  ["logs", ["log"]],
  ["checkpoint", ["checkpoint"]],
]);

/** @param segments of the path, decoded. */
export function subresourcesOf(segments: readonly string[]): readonly string[] {
  return areas.get(segments[0] ?? "") ?? ["proxy"];
}

const verbs: Readonly<Record<string, string>> = {
  GET: "get",
  POST: "create",
  PUT: "update",
  PATCH: "patch",
  DELETE: "delete",
};

/** Areas that do something in a pod, by whichever method: a WebSocket is asked for by GET. */
const acting: ReadonlySet<string> = new Set(["run", "exec", "attach", "portForward"]);

/** The verb that a caller needs: the method's; to do something in a pod `create`, whatever the method. Empty for methods without one. */
export function verbOf(method: string, segments: readonly string[]): string {
  return acting.has(segments[0] ?? "") ? "create" : (verbs[method] ?? "");
}

export type HandlerName =
  | "healthz"
  | "healthCheck"
  | "pods"
  | "runningPods"
  | "configz"
  | "metrics"
  | "probeMetrics"
  | "resourceMetrics"
  | "cadvisorMetrics"
  | "statsSummary"
  | "systemLogs"
  | "checkpoint"
  | "containerLogs"
  | "run"
  | "exec"
  | "attach"
  | "portForward";

export interface Route {
  /** As express has it. */
  readonly path: string;
  readonly methods: readonly ("get" | "post")[];
  readonly handler: HandlerName;
  /** Served only with enableDebuggingHandlers. */
  readonly debugging: boolean;
}

const container = "/:namespace/:pod/:container";
const containerByUid = "/:namespace/:pod/:uid/:container";
const read = { methods: ["get"], debugging: false } as const;
const debugRead = { methods: ["get"], debugging: true } as const;
const stream = { methods: ["get", "post"], debugging: true } as const;

export const routes: readonly Route[] = [
  { path: "/healthz", handler: "healthz", ...read },
  { path: "/healthz/:check", handler: "healthCheck", ...read },
  { path: "/pods", handler: "pods", ...read },
  { path: "/metrics", handler: "metrics", ...read },
  { path: "/metrics/probes", handler: "probeMetrics", ...read },
  { path: "/metrics/resource", handler: "resourceMetrics", ...read },
  { path: "/metrics/cadvisor", handler: "cadvisorMetrics", ...read },
  { path: "/stats/summary", handler: "statsSummary", methods: ["get", "post"], debugging: false },
  { path: "/runningpods", handler: "runningPods", ...debugRead },
  { path: "/configz", handler: "configz", ...debugRead },
  { path: "/logs{/*path}", handler: "systemLogs", ...debugRead },
  { path: `/checkpoint${container}`, handler: "checkpoint", methods: ["post"], debugging: true },
  { path: `/containerLogs${container}`, handler: "containerLogs", ...debugRead },
  { path: `/run${container}`, handler: "run", methods: ["post"], debugging: true },
  { path: `/run${containerByUid}`, handler: "run", methods: ["post"], debugging: true },
  { path: `/exec${container}`, handler: "exec", ...stream },
  { path: `/exec${containerByUid}`, handler: "exec", ...stream },
  { path: `/attach${container}`, handler: "attach", ...stream },
  { path: `/attach${containerByUid}`, handler: "attach", ...stream },
  { path: "/portForward/:namespace/:pod", handler: "portForward", ...stream },
  { path: "/portForward/:namespace/:pod/:uid", handler: "portForward", ...stream },
];

/** Areas that answer 405 while enableDebuggingHandlers is false. */
export const debuggingAreas: readonly string[] = [
  "run",
  "exec",
  "attach",
  "portForward",
  "containerLogs",
  "runningpods",
  "debug",
  "logs",
];
