import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express, { type NextFunction, type Request, type Response } from "express";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Sharing } from "../seams/provider.ts";
import { sendText } from "./answer.ts";
import { serve } from "./listen.ts";
import { healthCheck, healthz, ping } from "./routes/health.ts";
import type { KubeletServer } from "./server.ts";

export interface HealthzServerDeps {
  /** KubeletConfiguration.healthzBindAddress and healthzPort. */
  readonly address: string;
  readonly port: number;
  /** How the node uses its runtime: told to other agents that want to know whether they may stand beside it. */
  readonly sharing: Sharing;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What a node calls itself in the `Server` header of its health endpoint. */
export function serverName(sharing: Sharing): string {
  return `graftlet (${sharing})`;
}

/** The health endpoint for programs on graftlet's own machine: plain HTTP, nothing but /healthz and /healthz/ping. `run`
 *  throws a CodedError, one sentence, when it cannot listen.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (healthzPort) */
export function createHealthzServer({ address, port, sharing, clock, log }: HealthzServerDeps): KubeletServer {
  const listening = Promise.withResolvers<void>();
  let bound: AddressInfo | undefined;
  return {
    name: "healthz",
    ready: () => listening.promise,
    address: () => bound,
    async run(signal) {
      const app = express().disable("x-powered-by").disable("etag");
      app.use((_request, response, next) => {
        response.set("Server", serverName(sharing));
        next();
      });
      app.all("/healthz", healthz([ping]));
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
        await serve({ server: createServer(app), at, clock, onListening }, signal);
      } finally {
        bound = undefined;
      }
    },
  };
}
