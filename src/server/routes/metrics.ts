import type { Request, Response } from "express";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

const zip = promisify(gzip);

/** /metrics and related paths: Prometheus' text format, whatever format is requested, compressed if the scraper accepts it.
 *  @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
export function metrics(
  text: (signal: AbortSignal) => Promise<string>,
): (request: Request, response: Response, signal: AbortSignal) => Promise<void> {
  return async (request, response, signal) => {
    const body = await text(signal);
    response.status(200).setHeader("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    if (!request.acceptsEncodings("gzip")) return void response.end(body);
    response.setHeader("Content-Encoding", "gzip");
    response.end(await zip(body));
  };
}
