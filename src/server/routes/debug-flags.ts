import type { Response } from "express";
import { goQuote } from "../../lib/go-quote.ts";
import { BoundedBuffer } from "../../lib/bounded-buffer.ts";
import { type Handler, sendText } from "../responses.ts";
import type { KubeletServerDeps } from "../ports.ts";

/** Maximum body size, bytes; far more than a number needs. */
const maxBodyBytes = 1024;

/** PUT /debug/flags/v: sets the verbosity of the process's log while it runs; status and text are the kubelet's.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/ */
export function debugFlags({
  config,
  verbosity,
  log,
}: Pick<KubeletServerDeps, "config" | "verbosity" | "log">): Handler {
  return async (request, response) => {
    if (!config.enableDebugFlagsHandler) return sendText(response, 405, "flags endpoint is disabled.\n");
    if (request.method !== "PUT") return sendLine(response, 406, "unsupported http method");
    const body = new BoundedBuffer(maxBodyBytes);
    for await (const chunk of request) {
      if (!body.add(chunk as Buffer)) return sendLine(response, 413, `the body has more than ${maxBodyBytes} bytes`);
    }
    const text = body.bytes().toString();
    const wrong = verbosityError(text);
    if (wrong !== undefined) return sendLine(response, 400, wrong);
    verbosity.set(Number(text));
    log.info({ verbosity: Number(text) }, "log verbosity has been set");
    sendLine(response, 200, `successfully set klog.logging.verbosity to ${text}`);
  };
}

/** What is wrong with a verbosity, in the words of Go's strconv; undefined for a valid one. */
function verbosityError(text: string): string | undefined {
  if (!/^\d+$/.test(text)) return `strconv.ParseUint: parsing ${goQuote(text)}: invalid syntax`;
  const level = BigInt(text);
  if (level >= 2n ** 32n) return `strconv.ParseUint: parsing ${goQuote(text)}: value out of range`;
  if (level < 2n ** 31n) return undefined;
  return `failed set klog.logging.verbosity ${text}: strconv.ParseInt: parsing ${goQuote(text)}: value out of range`;
}

/** Text with a line break, and a content type without a character set, as Go's handler writes it. */
function sendLine(response: Response, status: number, text: string): void {
  response.setHeader("Content-Type", "text/plain");
  response.status(status).setHeader("X-Content-Type-Options", "nosniff").end(`${text}\n`);
}
