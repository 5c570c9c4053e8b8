import type { Request, Response } from "express";
import { CodedError } from "../lib/errors.ts";

/** Serves a request. @param signal aborts when the client disconnects, and when the server stops. */
export type Handler = (request: Request, response: Response, signal: AbortSignal) => void | Promise<void>;

/** Responds with plain text, unchanged. */
export function sendText(response: Response, status: number, text: string): void {
  response.status(status).type("text/plain").set("X-Content-Type-Options", "nosniff").end(text);
}

/** Responds 200 with JSON. */
export function sendJson(response: Response, value: object): void {
  response.status(200).type("application/json").end(JSON.stringify(value));
}

/** HTTP status of a failed streaming request: 404 for an object unknown to the runtime, 429 at its limits, otherwise 500. */
export function streamingStatus(error: unknown): number {
  if (!(error instanceof CodedError)) return 500;
  if (error.code === "not_found") return 404;
  return error.code === "resource_exhausted" ? 429 : 500;
}
