/** Every path of the kubelet API. The required subresource of nodes depends only on the area of the path; a path in no area needs
 *  `proxy`.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */

/** Subresources in order; permission on any one suffices. Unsupported areas are included: nonexistent paths are hidden by the same rules.
 *  */
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

/** Areas that act on a pod, with any method: WebSocket requests use GET. */
const podActionAreas: ReadonlySet<string> = new Set(["run", "exec", "attach", "portForward"]);

/** The required verb: that of the method, or `create` for actions on a pod with any method. Empty for methods without a verb. */
export function verbOf(method: string, segments: readonly string[]): string {
  return podActionAreas.has(segments[0] ?? "") ? "create" : (verbs[method] ?? "");
}

export type HandlerName =
  | "healthz"
  | "healthCheck"
  | "pods"
  | "runningPods"
  | "configz"
  | "metrics"
  | "probeMetrics"
  | "sliMetrics"
  | "resourceMetrics"
  | "cadvisorMetrics"
  | "statsSummary"
  | "systemLogs"
  | "checkpoint"
  | "containerLogs"
  | "debugFlags"
  | "pprof"
  | "flagz"
  | "statusz"
  | "run"
  | "exec"
  | "attach"
  | "portForward";

export interface Route {
  /** Path in express syntax. */
  readonly path: string;
  readonly methods: readonly ("get" | "post")[] | "any";
  readonly handler: HandlerName;
  /** Served only with enableDebuggingHandlers. */
  readonly debugging: boolean;
  /** Served only with this gate. */
  readonly gate?: "flagz" | "statusz";
}

const container = "/:namespace/:pod/:container";
const containerByUid = "/:namespace/:pod/:uid/:container";
const read = { methods: ["get"], debugging: false } as const;
/** Any method is accepted, as by kubelet handlers outside of web services. */
const any = { methods: "any", debugging: false } as const;
const debugRead = { methods: ["get"], debugging: true } as const;
const stream = { methods: ["get", "post"], debugging: true } as const;

export const routes: readonly Route[] = [
  { path: "/healthz", handler: "healthz", ...any },
  { path: "/healthz/:check", handler: "healthCheck", ...any },
  { path: "/pods", handler: "pods", ...read },
  { path: "/metrics", handler: "metrics", ...any },
  { path: "/metrics/probes", handler: "probeMetrics", ...any },
  { path: "/metrics/slis", handler: "sliMetrics", ...any },
  { path: "/metrics/resource", handler: "resourceMetrics", ...any },
  { path: "/metrics/cadvisor", handler: "cadvisorMetrics", ...any },
  { path: "/stats/summary", handler: "statsSummary", methods: ["get", "post"], debugging: false },
  { path: "/runningpods", handler: "runningPods", ...debugRead },
  { path: "/configz", handler: "configz", ...debugRead },
  { path: "/flagz", handler: "flagz", methods: "any", debugging: true, gate: "flagz" },
  { path: "/statusz", handler: "statusz", methods: "any", debugging: true, gate: "statusz" },
  { path: "/logs{/*path}", handler: "systemLogs", ...debugRead },
  { path: `/checkpoint${container}`, handler: "checkpoint", methods: ["post"], debugging: true },
  { path: `/containerLogs${container}`, handler: "containerLogs", ...debugRead },
  { path: "/debug/flags/v", handler: "debugFlags", methods: "any", debugging: true },
  { path: "/debug/pprof{/*path}", handler: "pprof", ...debugRead },
  { path: `/run${container}`, handler: "run", methods: ["post"], debugging: true },
  { path: `/run${containerByUid}`, handler: "run", methods: ["post"], debugging: true },
  { path: `/exec${container}`, handler: "exec", ...stream },
  { path: `/exec${containerByUid}`, handler: "exec", ...stream },
  { path: `/attach${container}`, handler: "attach", ...stream },
  { path: `/attach${containerByUid}`, handler: "attach", ...stream },
  { path: "/portForward/:namespace/:pod", handler: "portForward", ...stream },
  { path: "/portForward/:namespace/:pod/:uid", handler: "portForward", ...stream },
];

/** A route's path as a kubelet writes it: `/exec/{podNamespace}/{podID}/{containerName}`. */
export function templateOf(path: string): string {
  const names = { namespace: "podNamespace", pod: "podID", uid: "uid", container: "containerName", check: "check" };
  return path
    .replace("{/*path}", path.startsWith("/logs") ? "/{logpath:*}" : "/{subpath:*}")
    .replace(/:(namespace|pod|uid|container|check)/g, (_, name: keyof typeof names) => `{${names[name]}}`);
}

/** Areas that respond 405 while enableDebuggingHandlers is false. */
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
