import { createServer } from "node:https";
import express, { type NextFunction, type Request, type Response } from "express";
import { guardResponses } from "../lib/guard-responses.ts";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createAccessCheck } from "./access-check.ts";
import { createListening, requestTimes, serveHttps } from "./listen.ts";
import { createPeerCertificates } from "./peer-certificates.ts";
import type { Authenticator, Authorizer } from "./ports.ts";
import { sendText } from "./responses.ts";
import { metrics } from "./routes/metrics.ts";
import { type KubeletServer, tlsHandshakeMs } from "./server.ts";
import { createUnauthenticatedConnections } from "./unauthenticated-connections.ts";

export interface MetricsServerDeps extends ClockAndLog {
  /** Listen address, and the name of the port's setting. */
  readonly at: { readonly address: string; readonly port: number; readonly setting: string };
  /** Path of the metrics; callers need `get` on `nodes/metrics` of all nodes. */
  readonly path: string;
  /** In PEM. */
  readonly certificate: { readonly certificate: string; readonly key: string };
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  /** Returns the metrics in Prometheus' exposition format. */
  readonly text: () => Promise<string>;
}

/** Connection limits: for unauthenticated callers, and for authenticated ones. */
const connectionLimits = { maxUnauthenticated: 64, maxAuthenticated: 64 };
/** Header limits: callers send a bearer token. */
const headerLimits = { maxHeaderSize: 64 << 10, maxHeadersCount: 100 };

/** Metrics of the process over HTTPS. Callers present a bearer token, and are authorized as for the metrics of a kubelet. `run` throws a
 *  CodedError if it cannot listen.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#kubelet-authorization */
export function createMetricsServer(deps: MetricsServerDeps): KubeletServer {
  const { path, at, certificate, text, clock, log } = deps;
  const listening = createListening("metrics", log);
  return {
    name: "metrics",
    ready: listening.ready,
    address: listening.address,
    async run(stopped) {
      const unauthenticated = createUnauthenticatedConnections(connectionLimits);
      const certificates = createPeerCertificates(() => false, clock, tlsHandshakeMs);
      const check = createAccessCheck({ ...deps, config: { anonymous: false }, certificates, unauthenticated });
      const app = express().disable("x-powered-by").disable("etag");
      app.use((request, response, next) => {
        const gone = new AbortController();
        response.once("close", () => gone.abort());
        const signal = AbortSignal.any([stopped, gone.signal]);
        return check({ request, response, signal }, next);
      });
      const serve = metrics(text);
      app.get(path, (request, response) => serve(request, response, stopped));
      app.use((_request, response) => sendText(response, 404, "404 page not found\n"));
      app.use((error: unknown, _request: Request, response: Response, _next: NextFunction) => {
        log.warn({ why: messageOf(error) }, "cannot serve metrics");
        if (response.headersSent) response.destroy();
        else sendText(response, 500, "Internal Server Error\n");
      });
      const { certificate: cert, key } = certificate;
      const handshakeTimeout = tlsHandshakeMs;
      const server = guardResponses(
        createServer({ cert, key, handshakeTimeout, ...headerLimits, ...requestTimes }, app),
      );
      server.maxHeadersCount = headerLimits.maxHeadersCount;
      server.on("tlsClientError", (error) => log.debug({ why: messageOf(error) }, "TLS handshake failed"));
      const address = { address: at.address, port: at.port, addressField: at.setting, portField: at.setting };
      await serveHttps({ server, at: address, unauthenticated, listening, clock, log }, stopped);
    },
  };
}
