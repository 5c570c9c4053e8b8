import type { IncomingMessage, ServerResponse } from "node:http";
import express, { type NextFunction, type Request, type Response } from "express";
import { CodedError } from "../lib/errors.ts";
import { type Handler, sendText, sendJson } from "./responses.ts";
import { type Exchange, createAccessCheck } from "./access-check.ts";
import { waitForPod } from "./lookup.ts";
import { areaOf } from "./path.ts";
import type { PeerCertificates } from "./peer-certificates.ts";
import { type HandlerName, type Route, debuggingAreas, routes, templateOf } from "./routes.ts";
import { type HealthCheck, healthCheck, healthz, ping } from "./routes/health.ts";
import { checkpoint } from "./routes/checkpoint.ts";
import { debugFlags, pprof } from "./routes/pprof.ts";
import { flagz, statusz } from "./routes/statusz.ts";
import { containerLogs } from "./routes/logs.ts";
import { metrics, sliMetrics, statsSummary } from "./routes/metrics.ts";
import { pods, runningPodsRoute } from "./routes/pods.ts";
import { run } from "./routes/run.ts";
import { type StreamDeps, attach, exec, portForward } from "./routes/streams.ts";
import { systemLogs } from "./routes/system-logs.ts";

export interface AppDeps extends StreamDeps {
  readonly certificates: PeerCertificates;
  /** Aborts when the server stops. */
  readonly stopped: AbortSignal;
}

/** Serves the requests of one node's clients. */
export type NodeApp = (request: IncomingMessage, response: ServerResponse) => void;

/** The kubelet API as an express application, which all nodes of a process share, because its routes take 49 KiB. */
export interface KubeletApi {
  /** Returns the application with a node's parts. */
  forNode(deps: AppDeps): NodeApp;
}

interface ServedNode {
  readonly deps: AppDeps;
  readonly admit: ReturnType<typeof createAccessCheck>;
  readonly handlers: Readonly<Record<HandlerName, Handler>>;
}

/** A request to a node. */
interface NodeRequest extends ServedNode {
  /** Aborts when the client disconnects, and when the server stops. */
  readonly signal: AbortSignal;
}

/** Creates the kubelet API. Before any route, every request, upgrades included, is authenticated, its path is checked, and it is authorized;
 *  only then is an unknown path a 404. */
export function createKubeletApi(): KubeletApi {
  const app = express();
  app.disable("x-powered-by").disable("etag").enable("case sensitive routing");
  const requests = new WeakMap<IncomingMessage, NodeRequest>();
  const nodeOf = (request: Request): NodeRequest => {
    const known = requests.get(request);
    if (!known) throw new Error("a request to the kubelet API belongs to no node");
    return known;
  };
  app.use(async (request, response, next) => {
    const { admit, signal } = nodeOf(request);
    await admit({ request, response, signal }, next);
  });
  for (const route of routes) {
    // One handler for all methods: `app.all` would keep thirty-five of them.
    app.route(route.path).all((request, response, next) => {
      const { deps, handlers, signal } = nodeOf(request);
      if (!isServed(route, deps.config)) return next();
      return tracedServe(deps, route, handlers[route.handler], { request, response, signal });
    });
  }
  for (const area of debuggingAreas) {
    app.use(`/${area}`, (request, response, next) => {
      if (nodeOf(request).deps.config.enableDebuggingHandlers) return next();
      return sendText(response, 405, "Debug endpoints are disabled.\n");
    });
  }
  app.use((_request, response) => sendText(response, 404, "404: Page Not Found"));
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) => {
    nodeOf(request).deps.log.error({ path: request.path, err: error }, "cannot serve kubelet API request");
    if (response.headersSent) response.destroy();
    else sendText(response, 500, "Internal Server Error\n");
  });
  return {
    forNode(deps) {
      const node = { deps, admit: createAccessCheck(deps), handlers: createHandlers(deps) };
      return (request, response) => {
        requests.set(request, { ...node, signal: received(deps, request, response) });
        app(request, response);
      };
    },
  };
}

/** Counts a request. @returns a signal that aborts when its client disconnects, and when the server stops. */
function received(deps: AppDeps, request: IncomingMessage, response: ServerResponse): AbortSignal {
  count(deps, request, response);
  const gone = new AbortController();
  response.once("close", () => gone.abort(new CodedError("cancelled", "the client has disconnected")));
  if (deps.certificates.isStale(request.socket)) response.setHeader("Connection", "close");
  return AbortSignal.any([deps.stopped, gone.signal]);
}

/** True if the node's configuration has the route. */
function isServed({ debugging, gate }: Route, config: AppDeps["config"]): boolean {
  return (!debugging || config.enableDebuggingHandlers) && (!gate || config[gate]);
}

/** Areas of requests that become streams. */
const streamAreas = new Set(["exec", "attach", "portForward"]);

/** Counts a request until it has ended; for a stream, until its connection has ended. */
function count({ serving, clock, upgradeOf }: AppDeps, request: IncomingMessage, response: ServerResponse): void {
  const since = clock.monotonic();
  const area = areaOf(request.url ?? "");
  const ended = serving.began(request.method ?? "", area);
  if (streamAreas.has(area) && request.headers.upgrade?.toLowerCase() === "websocket") serving.webSocket(area);
  const lasting = upgradeOf(request)?.socket ?? response;
  lasting.once("close", () => ended(clock.monotonic() - since));
}

/** Serves a request within a span that continues the trace of an authorized caller. The query is not recorded, since it contains
 *  the command of an exec.
 *  @see https://pkg.go.dev/go.opentelemetry.io/contrib/instrumentation/github.com/emicklei/go-restful/otelrestful */
function tracedServe(deps: AppDeps, route: Route, handler: Handler, exchange: Exchange): Promise<void> {
  const { request, response } = exchange;
  if (!deps.tracer.isOn) return serve(deps, route, handler, exchange);
  const template = templateOf(route.path);
  const attributes = {
    "http.request.method": request.method,
    "http.route": template,
    "server.address": "kubelet",
    "url.path": request.path,
    "url.scheme": "https",
  };
  return deps.tracer.span(template, { kind: "server", attributes, parent: request.headers }, async (span) => {
    await serve(deps, route, handler, exchange);
    span.add({ "http.response.status_code": response.statusCode });
    if (response.statusCode >= 500) span.fail(new Error(`status ${response.statusCode}`));
  });
}

async function serve(deps: AppDeps, route: Route, handler: Handler, exchange: Exchange): Promise<void> {
  const { request, response, signal } = exchange;
  const methods = route.methods === "any" ? [] : route.methods.map((method) => method.toUpperCase());
  if (route.methods !== "any" && !methods.includes(request.method)) {
    response.set("Allow", methods.join(", "));
    return sendText(response, 405, "405: Method Not Allowed");
  }
  const { namespace, pod } = request.params as Record<string, string | undefined>;
  const known = namespace === undefined || pod === undefined || (await waitForPod(deps, namespace, pod, signal));
  if (known) await handler(request, response, signal);
  else sendText(response, 503, "the node has just started and does not know its pods yet: try again in a moment");
}

function createHandlers(deps: AppDeps): Readonly<Record<HandlerName, Handler>> {
  const checks: readonly HealthCheck[] = [
    ping,
    { name: "log", check: ping.check },
    { name: "syncloop", check: deps.syncLoop },
    // Always healthy: if the device plugin socket cannot be served, the node runs without device plugins and retries.
    { name: "device-plugin", check: ping.check },
  ];
  return {
    healthz: healthz(checks, deps.health),
    healthCheck: healthCheck(checks),
    pods: pods(deps),
    runningPods: runningPodsRoute(deps.podCache),
    configz: configz(deps.configz),
    metrics: metrics(deps.metrics.text),
    probeMetrics: metrics(deps.metrics.probes),
    sliMetrics: sliMetrics(deps.metrics),
    resourceMetrics: metrics(deps.stats.resource),
    cadvisorMetrics: metrics(deps.stats.cadvisor),
    statsSummary: statsSummary(deps),
    systemLogs: systemLogs(deps),
    checkpoint: checkpoint(deps),
    containerLogs: containerLogs(deps),
    debugFlags: debugFlags(deps),
    pprof: pprof(deps),
    flagz: flagz(deps),
    statusz: statusz(deps),
    run: run(deps),
    exec: exec(deps),
    attach: attach(deps),
    portForward: portForward(deps),
  };
}

/** /configz: the effective configuration, whole, as the kubelet shows it.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ */
function configz(configuration: () => object): Handler {
  return (_request, response) => sendJson(response, { kubeletconfig: configuration() });
}
