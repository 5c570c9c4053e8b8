import { createServer } from "node:http";
import express, { type NextFunction, type Request, type Response } from "express";
import { guardResponses } from "../lib/guard-responses.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { HealthMeasures } from "./ports.ts";
import type { Sharing } from "../seams/provider.ts";
import { type Handler, sendText } from "./responses.ts";
import { createListening, requestTimes, serveHttps } from "./listen.ts";
import { healthCheck, healthz, ping } from "./routes/health.ts";
import type { KubeletServer } from "./server.ts";
import { createUnauthenticatedConnections } from "./unauthenticated-connections.ts";

export interface HealthzServerDeps extends ClockAndLog {
  /** KubeletConfiguration.healthzBindAddress and healthzPort. */
  readonly address: string;
  readonly port: number;
  /** Sharing of this machine's runtimes by this process's nodes; undefined if they use none. Other agents read it to decide whether
   *  they can run alongside this one. */
  readonly sharing: () => Sharing | undefined;
  /** ID of this process, by which nodes recognize their own endpoint. */
  readonly instance: string;
  /** Reason why the process is not ready; undefined if /readyz succeeds. */
  readonly readiness: { unready(): string | undefined };
  /** Counts results of /healthz; absent if the endpoint serves several nodes. */
  readonly measures?: HealthMeasures;
}

/** Callers are not authenticated here. */
const connectionLimits = { maxUnauthenticated: 64, maxAuthenticated: 0 };

/** Value of the `Server` header on graftlet's health endpoint. */
export function serverName(sharing: Sharing | undefined): string {
  return `graftlet (${sharing ?? "elsewhere"})`;
}

/** Header with the ID of the responding process. */
export const instanceHeader = "Graftlet-Instance";

/** The health endpoint: plain HTTP with only /healthz, /livez and /healthz/ping, which report that the process responds, and /readyz,
 *  which reports that its nodes are served as far as possible. `run` throws a CodedError if it cannot listen.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (healthzPort) */
export function createHealthzServer({
  address,
  port,
  sharing,
  instance,
  readiness,
  measures,
  clock,
  log,
}: HealthzServerDeps): KubeletServer {
  const listening = createListening("healthz", log);
  return {
    name: "healthz",
    ready: listening.ready,
    address: listening.address,
    async run(signal) {
      const app = express().disable("x-powered-by").disable("etag");
      app.use((_request, response, next) => {
        response.set("Server", serverName(sharing()));
        response.set(instanceHeader, instance);
        next();
      });
      const route = (path: string, handler: Handler) =>
        app.all(path, (request, response) => handler(request, response, signal));
      route("/healthz", healthz([ping], measures));
      route("/livez", healthz([ping]));
      route("/readyz", healthz([ping, { name: "nodes", check: () => readiness.unready() }]));
      route("/healthz/:check", healthCheck([ping]));
      app.use((_request, response) => sendText(response, 404, "404 page not found\n"));
      app.use((_error: unknown, _request: Request, response: Response, _next: NextFunction) =>
        sendText(response, 400, "400 Bad Request\n"),
      );
      const at = { address, port, addressField: "healthzBindAddress", portField: "healthzPort" };
      const unauthenticated = createUnauthenticatedConnections(connectionLimits);
      const server = guardResponses(createServer(requestTimes, app));
      await serveHttps({ server, at, unauthenticated, listening, clock, log }, signal);
    },
  };
}
