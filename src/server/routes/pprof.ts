import type { Response } from "express";
import { hasCode, messageOf } from "../../lib/errors.ts";
import { pathSegments, queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";
import type { ProfileKind } from "../profiler.ts";
import { type Handler, sendText } from "../responses.ts";
import { goQuote } from "../../lib/go-quote.ts";
import { BoundedBuffer } from "../../lib/bounded-buffer.ts";

/** Profiles by the name in the path: description, and duration unless the request specifies one, seconds. */
const profiles: ReadonlyMap<string, { readonly kind: ProfileKind; readonly seconds: number; readonly title: string }> =
  new Map([
    ["heap", { kind: "heap", seconds: 10, title: "memory allocated within ?seconds=10 and still in use" }],
    ["profile", { kind: "cpu", seconds: 30, title: "CPU time within ?seconds=30" }],
  ]);

/** Longest time for which a profile is taken, seconds: V8 keeps all samples in memory meanwhile. */
const maxSeconds = 300;

/** /debug/pprof: profiles of the process in pprof's format, which `go tool pprof` reads, and a list of them.
 *  @see https://pkg.go.dev/net/http/pprof */
export function pprof({
  config,
  profiles: taken,
  log,
}: Pick<KubeletServerDeps, "config" | "profiles" | "log">): Handler {
  return async (request, response, signal) => {
    if (!config.enableProfilingHandler) return sendText(response, 405, "profiling endpoint is disabled.\n");
    const name = pathSegments(request.originalUrl)?.slice(2).join("/") ?? "";
    if (name === "") return sendText(response, 200, index());
    const profile = profiles.get(name);
    if (!profile) return sendError(response, 404, "Unknown profile");
    const query = queryOf(request.originalUrl);
    if (Number(query.get("debug") ?? 0) !== 0)
      return sendError(response, 400, "only debug=0 is supported: read the profile with go tool pprof");
    const seconds = secondsOf(query.get("seconds"), profile.seconds);
    if (seconds > maxSeconds) return sendError(response, 400, "profile duration exceeds server's WriteTimeout");
    try {
      const bytes = await taken.take(profile.kind, seconds * 1000, signal);
      response
        .status(200)
        .set("Content-Type", "application/octet-stream")
        .set("Content-Disposition", `attachment; filename="${name}"`)
        .set("X-Content-Type-Options", "nosniff")
        .end(bytes);
    } catch (error) {
      if (signal.aborted) return void response.destroy();
      if (!hasCode(error, "failed_precondition")) log.warn({ err: error, profile: name }, "cannot take a profile");
      const what = profile.kind === "cpu" ? "CPU" : profile.kind;
      sendError(response, 500, `Could not enable ${what} profiling: ${messageOf(error)}`);
    }
  };
}

/** The requested seconds; the default if the text is not a positive integer, as in Go. */
function secondsOf(text: string | null, byDefault: number): number {
  const seconds = /^\+?\d+$/.test(text ?? "") ? Number(text) : 0;
  return seconds > 0 ? seconds : byDefault;
}

function index(): string {
  return ["/debug/pprof/", ...[...profiles].map(([name, { title }]) => `${name}: ${title}`), ""].join("\n");
}

/** Responds with an error as Go's handlers do. */
function sendError(response: Response, status: number, text: string): void {
  response.set("X-Go-Pprof", "1");
  sendText(response, status, `${text}\n`);
}

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
