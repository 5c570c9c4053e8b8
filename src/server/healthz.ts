import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express, { type NextFunction, type Request, type Response } from "express";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Sharing } from "../seams/provider.ts";
import { sendText } from "./answer.ts";
import { requestTimes, serve } from "./listen.ts";
import { healthCheck, healthz, ping } from "./routes/health.ts";
import type { KubeletServer } from "./server.ts";
import { createStrangers } from "./strangers.ts";

export interface HealthzServerDeps {
  /** KubeletConfiguration.healthzBindAddress and healthzPort. */
  readonly address: string;
  readonly port: number;
  /** How the nodes of this process use the runtimes of this machine; undefined where they use none. Told to other agents that
   *  want to know whether they may stand beside it. */
  readonly sharing: () => Sharing | undefined;
  /** Of this process: by it nodes know the endpoint as their own. */
  readonly instance: string;
  /** Of the process: why /readyz does not say yes. */
  readonly readiness: { unready(): string | undefined };
  readonly clock: Clock;
  readonly log: Logger;
}

/** Callers are not authenticated here. */
const connections = { most: 64, mostKnown: 0 };

/** What graftlet calls itself in the `Server` header of its health endpoint. */
export function serverName(sharing: Sharing | undefined): string {
  return `graftlet (${sharing ?? "elsewhere"})`;
}

/** The header that says which process answers. */
export const instanceHeader = "Graftlet-Instance";

/** The health endpoint: plain HTTP, nothing but /healthz, /livez and /healthz/ping, which say that the process answers, and
 *  /readyz, which says that its nodes are served as far as they can be.
 *  `run` throws a CodedError, one sentence, when it cannot listen.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (healthzPort) */
export function createHealthzServer({
  address,
  port,
  sharing,
  instance,
  readiness,
  clock,
  log,
}: HealthzServerDeps): KubeletServer {
  const listening = Promise.withResolvers<void>();
  let bound: AddressInfo | undefined;
  return {
    name: "healthz",
    ready: () => listening.promise,
    address: () => bound,
    async run(signal) {
      const app = express().disable("x-powered-by").disable("etag");
      app.use((_request, response, next) => {
        response.set("Server", serverName(sharing()));
        response.set(instanceHeader, instance);
        next();
      });
      app.all(["/healthz", "/livez"], healthz([ping]));
      app.all("/readyz", healthz([ping, { name: "nodes", check: () => readiness.unready() }]));
      app.all("/healthz/:check", healthCheck([ping]));
      app.use((_request, response) => sendText(response, 404, "404 page not found\n"));
      app.use((_error: unknown, _request: Request, response: Response, _next: NextFunction) =>
        sendText(response, 400, "400 Bad Request\n"),
      );
      const at = { address, port, addressField: "healthzBindAddress", portField: "healthzPort" };
      try {
        const onListening = (where: AddressInfo) => {
          bound = where;
          log.info({ address: where.address, port: where.port }, "healthz listening");
          listening.resolve();
        };
        const strangers = createStrangers(connections);
        await serve({ server: createServer(requestTimes, app), at, strangers, clock, onListening }, signal);
      } finally {
        bound = undefined;
      }
    },
  };
}
