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

/** /logs: the files of the target's /var/log, and directory listings. Links are followed only to log directories.
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

/** True if a file is in a log directory: write access for links must not expose other files. */
async function isLog(
  { runtime, podLogsDir, files }: Pick<KubeletServerDeps, "runtime" | "podLogsDir" | "files">,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const named = [root, podLogsDir, ...((await runtime.logRoots?.(signal)) ?? [])];
  // A root may be a link itself, for example to a larger disk.
  const roots = await Promise.all(named.map((one) => realPathOf(files, one, signal)));
  return roots.some((one) => path === one || path.startsWith(`${one}/`));
}

/** The path itself if nothing exists there, or nothing readable. */
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

/** Sends the size at opening time: a growing file would have no end, and a truncated one must not look complete. */
async function* blocksOf(file: HostFile, size: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  for (let at = 0; at < size; ) {
    const block = await file.read(at, Math.min(blockBytes, size - at), signal);
    if (block.length === 0) throw new CodedError("conflict", "the file was cut short while it was read");
    at += block.length;
    yield block;
  }
}

/** The entries of a directory, without following links on the path. @throws failed_precondition if a link appeared meanwhile. */
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

/** Go's file server's listing format. Names are untrusted: they are only shown as names. */
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

/** A name as a relative reference below its page: never a scheme, an authority or a query. */
function relative(name: string): string {
  const end = name.endsWith("/") ? "/" : "";
  return `./${encodeURIComponent(name.slice(0, name.length - end.length)).replaceAll("'", "%27")}${end}`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&#34;");
}
