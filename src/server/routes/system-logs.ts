import { posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Request, Response } from "express";
import { CodedError, type ErrorCode, codeOf, messageOf, ignoreCode } from "../../lib/errors.ts";
import type { HostFile, HostFs } from "../../seams/host.ts";
import type { Exchange } from "../admit.ts";
import { sendText } from "../responses.ts";
import { requestedRange } from "../byte-range.ts";
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
      if (!(await isLog(deps, path, signal))) return sendText(response, 403, `the path leads out of ${root}\n`);
      const { kind, modifiedAt } = await files.lstat(path, signal);
      const name = segments.at(-1) ?? "logs";
      const isDirectory = kind === "directory";
      if (isDirectory !== request.path.endsWith("/"))
        return response.redirect(301, isDirectory ? relative(`${name}/`) : `../${escapedPath(name)}`);
      if (!isDirectory) return await sendFile(files, path, { request, response, signal });
      if (isUnchanged(request, response, modifiedAt)) return;
      sendList(response, await listInPlace(files, path, signal));
    } catch (error) {
      if (signal.aborted || response.headersSent) return void response.destroy();
      const status = statuses[codeOf(error)] ?? 500;
      if (status === 500) log.warn({ err: error }, "cannot read a log file of the target");
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
  return (await ignoreCode(files.realpath(path, signal), "not_found", "permission_denied")) ?? path;
}

/** Sends a file as Go's file server does: all of it, or the requested range. */
async function sendFile(
  files: Pick<HostFs, "open">,
  path: string,
  { request, response, signal }: Exchange,
): Promise<void> {
  await using file = await files.open(path, { noFollow: true, signal });
  const { size, modifiedAt } = await file.stat(signal);
  if (isUnchanged(request, response, modifiedAt)) return;
  const same = request.headers["if-range"] ?? httpDate(modifiedAt);
  const asked = requestedRange(same === httpDate(modifiedAt) ? request.headers.range : undefined, size);
  if (asked.kind === "invalid") {
    if (!asked.overlaps) response.set("Content-Range", `bytes */${size}`);
    response.removeHeader("Last-Modified");
    return sendText(response, 416, `${asked.text}\n`);
  }
  const { start, length } = asked.kind === "part" ? asked : { start: 0, length: size };
  if (asked.kind === "part") response.set("Content-Range", `bytes ${start}-${start + length - 1}/${size}`);
  response.status(asked.kind === "part" ? 206 : 200).set("Accept-Ranges", "bytes");
  response.type("text/plain").set("X-Content-Type-Options", "nosniff").set("Content-Length", String(length));
  await pipeline(Readable.from(blocksOf(file, start, start + length, signal)), response, { signal });
}

/** Sets Last-Modified. @returns true after a 304 response to a client whose copy is current. */
function isUnchanged(request: Request, response: Response, modifiedAt: number): boolean {
  response.set("Last-Modified", httpDate(modifiedAt));
  const since = Date.parse(request.headers["if-modified-since"] ?? "");
  if (Number.isNaN(since) || Math.floor(modifiedAt / 1000) * 1000 > since) return false;
  response.status(304).end();
  return true;
}

function httpDate(milliseconds: number): string {
  return new Date(milliseconds).toUTCString();
}

/** Reads up to the size at opening time: a growing file would have no end, and a truncated one must not look complete. */
async function* blocksOf(file: HostFile, start: number, end: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  for (let at = start; at < end; ) {
    const block = await file.read(at, Math.min(blockBytes, end - at), signal);
    if (block.length === 0) throw new CodedError("conflict", "the file was truncated while it was read");
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
  const sorted = entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const names = sorted.map(({ name, kind }) => (kind === "directory" ? `${name}/` : name));
  const lines = names.map((name) => `<a href="${relative(name)}">${escaped(name)}</a>\n`);
  response
    .status(200)
    .type("text/html")
    .set("X-Content-Type-Options", "nosniff")
    .set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    .end(`<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n${lines.join("")}</pre>\n`);
}

/** A name as a relative reference below its page, as Go writes it: never a scheme, an authority or a query. */
function relative(name: string): string {
  return name.includes(":") ? `./${escapedPath(name)}` : escapedPath(name);
}

function escapedPath(name: string): string {
  return encodeURIComponent(name)
    .replace(/%(2F|24|26|2B|2C|3A|3B|3D|40)/g, decodeURIComponent)
    .replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&#34;");
}
