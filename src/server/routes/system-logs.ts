import { posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Request, Response } from "express";
import { CodedError, type ErrorCode, codeOf, messageOf, unlessCode } from "../../lib/errors.ts";
import type { HostFile, HostFs } from "../../seams/host.ts";
import { sendText } from "../answer.ts";
import { pathSegments } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

const root = "/var/log";
const blockBytes = 64 * 2 ** 10;

const statuses: { readonly [code in ErrorCode]?: number } = {
  not_found: 404,
  permission_denied: 403,
  // Neither a file nor a directory.
  failed_precondition: 403,
};

/** /logs: the files of the target's /var/log, and lists of them. Links are followed to where logs are, and nowhere else.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/ */
export function systemLogs(
  deps: KubeletServerDeps,
): (request: Request, response: Response, signal: AbortSignal) => Promise<void> {
  const { config, files, log } = deps;
  return async (request, response, signal) => {
    if (!config.enableSystemLogHandler) return sendText(response, 405, "logs endpoint is disabled.\n");
    const segments = pathSegments(request.originalUrl)?.slice(1) ?? [];
    try {
      const path = await files.realpath(posix.join(root, ...segments), signal);
      if (!(await isLog(deps, path, signal))) return sendText(response, 403, `this leads out of ${root}\n`);
      const { kind } = await files.lstat(path, signal);
      if (kind !== "directory") await sendFile(files, path, response, signal);
      else if (request.path.endsWith("/")) sendList(response, await listInPlace(files, path, signal));
      else response.redirect(301, relative(`${segments.at(-1) ?? "logs"}/`));
    } catch (error) {
      if (signal.aborted || response.headersSent) return void response.destroy();
      const status = statuses[codeOf(error)] ?? 500;
      if (status === 500) log.warn({ err: error }, "a log of the target could not be read");
      sendText(response, status, status === 404 ? "404 page not found\n" : `${messageOf(error)}\n`);
    }
  };
}

/** Whether a file is where logs are: whoever may write links there may not show other files by them. */
async function isLog(
  { runtime, podLogsDir, files }: Pick<KubeletServerDeps, "runtime" | "podLogsDir" | "files">,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const named = [root, podLogsDir, ...((await runtime.logRoots?.(signal)) ?? [])];
  // A root may be a link itself, to a larger disk for one.
  const roots = await Promise.all(named.map((one) => realPathOf(files, one, signal)));
  return roots.some((one) => path === one || path.startsWith(`${one}/`));
}

/** The path itself where nothing is there, or nothing that may be seen. */
async function realPathOf(files: Pick<HostFs, "realpath">, path: string, signal: AbortSignal): Promise<string> {
  return (await unlessCode(files.realpath(path, signal), "not_found", "permission_denied")) ?? path;
}

async function sendFile(
  files: Pick<HostFs, "open">,
  path: string,
  response: Response,
  signal: AbortSignal,
): Promise<void> {
  await using file = await files.open(path, { noFollow: true, signal });
  const { size } = await file.stat(signal);
  response.status(200).type("text/plain").set("X-Content-Type-Options", "nosniff").set("Content-Length", String(size));
  await pipeline(Readable.from(blocksOf(file, size, signal)), response, { signal });
}

/** What a file had when it was opened: one that grows would have no end, and one that is cut short must not look as if it had. */
async function* blocksOf(file: HostFile, size: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  for (let at = 0; at < size; ) {
    const block = await file.read(at, Math.min(blockBytes, size - at), signal);
    if (block.length === 0) throw new CodedError("conflict", "the file was cut short while it was read");
    at += block.length;
    yield block;
  }
}

/** The entries of a directory that no link on the path has led to.
 *  @throws failed_precondition when one was put there meanwhile. */
async function listInPlace(
  files: Pick<HostFs, "list" | "lstat" | "realpath">,
  path: string,
  signal: AbortSignal,
): ReturnType<HostFs["list"]> {
  const before = await files.lstat(path, signal);
  const entries = await files.list(path, signal);
  const [after, real] = await Promise.all([files.lstat(path, signal), files.realpath(path, signal)]);
  if (real !== path || after.kind !== "directory" || after.inode !== before.inode)
    throw new CodedError("failed_precondition", `${path} was replaced while it was read`);
  return entries;
}

/** As Go's file server lists a directory. What wrote the names is not to be trusted: nothing of them is more than a name. */
function sendList(response: Response, entries: Awaited<ReturnType<HostFs["list"]>>): void {
  const names = entries.map(({ name, kind }) => (kind === "directory" ? `${name}/` : name)).sort();
  const lines = names.map((name) => `<a href="${relative(name)}">${escaped(name)}</a>\n`);
  response
    .status(200)
    .type("text/html")
    .set("X-Content-Type-Options", "nosniff")
    .set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    .end(`<!doctype html>\n<pre>\n${lines.join("")}</pre>\n`);
}

/** A name as a reference below the page it is on: never a scheme, an authority or a query. */
function relative(name: string): string {
  const end = name.endsWith("/") ? "/" : "";
  return `./${encodeURIComponent(name.slice(0, name.length - end.length)).replaceAll("'", "%27")}${end}`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&#34;");
}
