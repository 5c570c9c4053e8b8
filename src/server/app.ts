import type { IncomingMessage } from "node:http";
import express, { type Express, type NextFunction, type Request, type Response } from "express";
import { CodedError, messageOf } from "../lib/errors.ts";
import { sendText } from "./answer.ts";
import { authenticate } from "./authentication.ts";
import { authorize } from "./authorization.ts";
import { createJoin } from "./join.ts";
import type { Upgrade } from "./joining.ts";
import { areaOf, pathSegments } from "./path.ts";
import type { PeerCertificates } from "./peer-certificates.ts";
import type { KubeletServerDeps } from "./ports.ts";
import { type HandlerName, type Route, debuggingAreas, routes } from "./routes.ts";
import { configz } from "./routes/configz.ts";
import { type HealthCheck, healthCheck, healthz, ping } from "./routes/health.ts";
import { checkpoint } from "./routes/checkpoint.ts";
import { containerLogs } from "./routes/logs.ts";
import { metrics } from "./routes/metrics.ts";
import { pods, runningPods } from "./routes/pods.ts";
import { run } from "./routes/run.ts";
import { statsSummary } from "./routes/stats.ts";
import { attach, exec, portForward } from "./routes/streams.ts";
import { systemLogs } from "./routes/system-logs.ts";

export interface AppDeps extends KubeletServerDeps {
  readonly certificates: PeerCertificates;
  readonly upgradeOf: (request: IncomingMessage) => Upgrade | undefined;
  /** Aborts when the server stops. */
  readonly stopped: AbortSignal;
}

type Handler = (request: Request, response: Response, signal: AbortSignal) => void | Promise<void>;

/** The kubelet API as an express application: every request, upgrades included, is authenticated, its path checked, and
 *  authorized, before any route sees it; what no route serves is 404 after that. */
export function createApp(deps: AppDeps): Express {
  const app = express();
  app.disable("x-powered-by").disable("etag").enable("case sensitive routing");
  const signals = new WeakMap<Response, AbortSignal>();
  const signalOf = (response: Response) => signals.get(response) ?? deps.stopped;
  app.use((request, response, next) => {
    count(deps, request, response);
    next();
  });
  app.use(async (request, response, next) => {
    const gone = new AbortController();
    signals.set(response, AbortSignal.any([deps.stopped, gone.signal]));
    response.once("close", () => gone.abort(new CodedError("cancelled", "the client went away")));
    if (deps.certificates.isStale(request.socket)) response.set("Connection", "close");
    await admit(deps, { request, response, signal: signalOf(response) }, next);
  });
  const handlers = createHandlers(deps);
  for (const route of routes) {
    if (route.debugging && !deps.config.enableDebuggingHandlers) continue;
    app.all(route.path, (request, response) =>
      serve(route, handlers[route.handler], { request, response, signal: signalOf(response) }),
    );
  }
  if (!deps.config.enableDebuggingHandlers) {
    for (const area of debuggingAreas) {
      app.use(`/${area}`, (_request, response) => sendText(response, 405, "Debug endpoints are disabled.\n"));
    }
  }
  app.use((_request, response) => sendText(response, 404, "404: Page Not Found"));
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) => {
    deps.log.error({ path: request.path, err: error }, "request failed");
    if (response.headersSent) response.destroy();
    else sendText(response, 500, "Internal Server Error\n");
  });
  return app;
}

interface Exchange {
  readonly request: Request;
  readonly response: Response;
  readonly signal: AbortSignal;
}

/** Counts a request, until its connection has ended where it became a stream. */
function count({ serving, clock, upgradeOf }: AppDeps, request: Request, response: Response): void {
  const since = clock.monotonic();
  const ended = serving.began(request.method, areaOf(request.originalUrl));
  const lasting = upgradeOf(request)?.socket ?? response;
  lasting.once("close", () => ended(clock.monotonic() - since));
}

async function admit(deps: AppDeps, { request, response, signal }: Exchange, next: NextFunction): Promise<void> {
  const authentication = { ...deps, anonymous: deps.config.anonymous };
  const user = await authenticate(authentication, request, signal).catch((error: unknown) => {
    deps.log.warn({ why: messageOf(error) }, "cannot find out who is calling");
  });
  if (!user) return sendText(response, 401, "Unauthorized");
  const segments = pathSegments(request.originalUrl);
  if (!segments) return sendText(response, 404, "404: Page Not Found");
  const verdict = await authorize(deps.authorizer, user, { method: request.method, segments }, signal);
  if (verdict.is === "allowed") return next();
  deps.log.debug(
    { user: user.name, method: request.method, area: segments[0] ?? "", why: verdict.why ?? "forbidden" },
    "request refused",
  );
  sendText(response, verdict.status, verdict.text);
}

async function serve(route: Route, handler: Handler, { request, response, signal }: Exchange): Promise<void> {
  if (route.methods.some((method) => method.toUpperCase() === request.method)) await handler(request, response, signal);
  else sendText(response, 405, "405: Method Not Allowed");
}

function createHandlers(deps: AppDeps): Readonly<Record<HandlerName, Handler>> {
  const join = createJoin(deps);
  const checks: readonly HealthCheck[] = [
    ping,
    { name: "log", check: ping.check },
    { name: "syncloop", check: deps.syncLoop },
  ];
  return {
    healthz: healthz(checks),
    healthCheck: healthCheck(checks),
    pods: pods(deps),
    runningPods: runningPods(deps.runtimePods),
    configz: configz(deps.configz),
    metrics: metrics(deps.metrics.text),
    probeMetrics: metrics(deps.metrics.probes),
    resourceMetrics: metrics(deps.stats.resource),
    cadvisorMetrics: metrics(deps.stats.cadvisor),
    statsSummary: statsSummary(deps),
    systemLogs: systemLogs(deps),
    checkpoint: checkpoint(deps),
    containerLogs: containerLogs(deps),
    run: run(deps),
    exec: exec(deps, join),
    attach: attach(deps, join),
    portForward: portForward(deps, join),
  };
}
