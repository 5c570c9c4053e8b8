import type { NextFunction, Request, Response } from "express";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import { sendText } from "./responses.ts";
import { type AuthenticationDeps, authenticate } from "./authentication.ts";
import { type AuthorizationResult, authorize, tooManyRequests } from "./authorization.ts";
import { pathSegments } from "./path.ts";
import type { Authorizer, ServerConfig } from "./ports.ts";
import type { UnauthenticatedConnections } from "./unauthenticated-connections.ts";

export interface AccessCheckDeps extends Omit<AuthenticationDeps, "anonymous">, ClockAndLog {
  readonly config: Pick<ServerConfig, "anonymous">;
  readonly authorizer: Authorizer;
  /** Called with the connections of authorized clients. */
  readonly unauthenticated: Pick<UnauthenticatedConnections, "authenticated">;
}

export interface Exchange {
  readonly request: Request;
  readonly response: Response;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Passes on requests whose sender is authenticated and authorized; refuses all others. */
export function createAccessCheck(deps: AccessCheckDeps): (exchange: Exchange, next: NextFunction) => Promise<void> {
  const unknown = createRateLimitedWarning(deps, "cannot authenticate the caller");
  return async (exchange, next) => {
    const { request, response } = exchange;
    const verdict = await reviewRequest(deps, exchange, unknown);
    if (verdict.kind === "allowed") {
      deps.unauthenticated.authenticated(request.socket);
      return next();
    }
    // Nothing more is read from an unauthorized client.
    if (!request.complete) response.set("Connection", "close");
    if (verdict.status === tooManyRequests.status) response.set("Retry-After", "1");
    sendText(response, verdict.status, verdict.text);
  };
}

async function reviewRequest(
  deps: AccessCheckDeps,
  { request, signal }: Exchange,
  unknown: (fields: object) => void,
): Promise<AuthorizationResult> {
  const refused = (status: number, text: string): AuthorizationResult => ({ kind: "refused", status, text });
  const authentication = { ...deps, anonymous: deps.config.anonymous };
  const user = await authenticate(authentication, request, signal).catch((error: unknown) => {
    if (!signal.aborted) unknown({ why: messageOf(error) });
    return hasCode(error, "resource_exhausted") ? tooManyRequests : undefined;
  });
  if (!user) return refused(401, "Unauthorized");
  if ("kind" in user) return user;
  const segments = pathSegments(request.originalUrl);
  if (!segments) return refused(404, "404: Page Not Found");
  const { method } = request;
  const verdict = await authorize(deps.authorizer, user, { method, segments }, signal);
  if (verdict.kind === "refused")
    deps.log.debug(
      { user: user.name, method, area: segments[0] ?? "", why: verdict.why ?? "forbidden" },
      "refused kubelet API request",
    );
  return verdict;
}
