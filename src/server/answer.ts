import type { Response } from "express";
import { CodedError } from "../lib/errors.ts";

/** Answers with plain text, as it stands. */
export function sendText(response: Response, status: number, text: string): void {
  response.status(status).type("text/plain").set("X-Content-Type-Options", "nosniff").end(text);
}

/** Answers 200 with JSON. */
export function sendJson(response: Response, value: object): void {
  response.status(200).type("application/json").end(JSON.stringify(value));
}

/** HTTP status of a failed streaming request: only what the runtime does not know and its limits have one of their own. */
export function streamingStatus(error: unknown): number {
  if (!(error instanceof CodedError)) return 500;
  if (error.code === "not_found") return 404;
  return error.code === "resource_exhausted" ? 429 : 500;
}
