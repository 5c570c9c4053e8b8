import type { Request, Response } from "express";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

const zip = promisify(gzip);

/** /metrics and its kin: the text format of Prometheus, whatever format is asked for (the kubelet's has no other text), zipped
 *  where the scraper takes that. @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
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
