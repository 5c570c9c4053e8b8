import express, { type Express, type NextFunction, type Request, type Response } from "express";
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

/** The kubelet API as an express application. Before any route, every request, upgrades included, is authenticated, its path is checked,
 *  and it is authorized; only then is an unknown path a 404. */
export function createApp(deps: AppDeps): Express {
  const app = express();
  app.disable("x-powered-by").disable("etag").enable("case sensitive routing");
  const admit = createAccessCheck(deps);
  const signals = new WeakMap<Response, AbortSignal>();
  const signalOf = (response: Response) => signals.get(response) ?? deps.stopped;
  app.use((request, response, next) => {
    count(deps, request, response);
    next();
  });
  app.use(async (request, response, next) => {
    const gone = new AbortController();
    signals.set(response, AbortSignal.any([deps.stopped, gone.signal]));
    response.once("close", () => gone.abort(new CodedError("cancelled", "the client has disconnected")));
    if (deps.certificates.isStale(request.socket)) response.set("Connection", "close");
    await admit({ request, response, signal: signalOf(response) }, next);
  });
  const handlers = createHandlers(deps);
  for (const route of routes) {
    if (route.debugging && !deps.config.enableDebuggingHandlers) continue;
    if (route.gate && !deps.config[route.gate]) continue;
    // One handler for all methods: `app.all` would keep thirty-five of them.
    app
      .route(route.path)
      .all((request, response) =>
        tracedServe(deps, route, handlers[route.handler], { request, response, signal: signalOf(response) }),
      );
  }
  if (!deps.config.enableDebuggingHandlers) {
    for (const area of debuggingAreas) {
      app.use(`/${area}`, (_request, response) => sendText(response, 405, "Debug endpoints are disabled.\n"));
    }
  }
  app.use((_request, response) => sendText(response, 404, "404: Page Not Found"));
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) => {
    deps.log.error({ path: request.path, err: error }, "cannot serve kubelet API request");
    if (response.headersSent) response.destroy();
    else sendText(response, 500, "Internal Server Error\n");
  });
  return app;
}

/** Areas of requests that become streams. */
const streamAreas = new Set(["exec", "attach", "portForward"]);

/** Counts a request until it has ended; for a stream, until its connection has ended. */
function count({ serving, clock, upgradeOf }: AppDeps, request: Request, response: Response): void {
  const since = clock.monotonic();
  const area = areaOf(request.originalUrl);
  const ended = serving.began(request.method, area);
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
