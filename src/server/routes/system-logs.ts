import { posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Request, Response } from "express";
import { CodedError, type ErrorCode, codeOf, messageOf } from "../../lib/errors.ts";
import type { HostFs } from "../../seams/host.ts";
import type { Exchange } from "../access-check.ts";
import { type Handler, sendText } from "../responses.ts";
import { isLog, readBlocks, root } from "../system-log-files.ts";
import { pathSegments } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { type LogPath, logQuery } from "./log-query.ts";

const statuses: { readonly [code in ErrorCode]?: number } = {
  not_found: 404,
  permission_denied: 403,
  // Neither a file nor a directory.
  failed_precondition: 403,
};

/** /logs: the files of the target's /var/log, directory listings, and queries. Links are followed only to log directories.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/ */
export function systemLogs(deps: KubeletServerDeps): Handler {
  const { config, log } = deps;
  const query = logQuery(deps);
  return async (request, response, signal) => {
    if (!config.enableSystemLogHandler) return sendText(response, 405, "logs endpoint is disabled.\n");
    const segments = pathSegments(request.originalUrl)?.slice(1) ?? [];
    try {
      const queried = config.enableSystemLogQuery ? await query(segments, { request, response, signal }) : "none";
      if (queried === "done") return;
      const path = queried === "none" ? { segments, isDirectory: request.path.endsWith("/") } : queried;
      await serveLog(deps, path, { request, response, signal });
    } catch (error) {
      if (signal.aborted || response.headersSent) return void response.destroy();
      const status = statuses[codeOf(error)] ?? 500;
      if (status === 500) log.warn({ err: error }, "cannot read log file on the target");
      sendText(response, status, status === 404 ? "404 page not found\n" : `${messageOf(error)}\n`);
    }
  };
}

async function serveLog(
  deps: KubeletServerDeps,
  { segments, isDirectory: expected }: LogPath,
  { request, response, signal }: Exchange,
): Promise<void> {
  const { files } = deps;
  const path = await files.realpath(posix.join(root, ...segments), signal);
  if (!(await isLog(deps, path, signal))) return sendText(response, 403, `the path is outside ${root}\n`);
  const { kind, modifiedAt } = await files.lstat(path, signal);
  const name = segments.at(-1) ?? "logs";
  const isDirectory = kind === "directory";
  if (isDirectory !== expected)
    return response.redirect(301, isDirectory ? relative(`${name}/`) : `../${escapedPath(name)}`);
  if (!isDirectory) return await sendFile(files, path, { request, response, signal });
  if (isUnchanged(request, response, modifiedAt)) return;
  sendList(response, await listInPlace(files, path, signal));
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
  const range = requestedRange(same === httpDate(modifiedAt) ? request.headers.range : undefined, size);
  if (range.kind === "invalid") {
    if (!range.overlaps) response.set("Content-Range", `bytes */${size}`);
    response.removeHeader("Last-Modified");
    return sendText(response, 416, `${range.text}\n`);
  }
  const { start, length } = range.kind === "part" ? range : { start: 0, length: size };
  if (range.kind === "part") response.set("Content-Range", `bytes ${start}-${start + length - 1}/${size}`);
  response.status(range.kind === "part" ? 206 : 200).set("Accept-Ranges", "bytes");
  response.type("text/plain").set("X-Content-Type-Options", "nosniff").set("Content-Length", String(length));
  await pipeline(Readable.from(readBlocks(file, start, start + length, signal)), response, { signal });
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

/** The requested part of a file. */
type RequestedRange =
  | { readonly kind: "all" }
  | { readonly kind: "part"; readonly start: number; readonly length: number }
  /** @param text why the range is invalid. */
  | { readonly kind: "invalid"; readonly text: string; readonly overlaps: boolean };

const all: RequestedRange = { kind: "all" };
const invalid: RequestedRange = { kind: "invalid", text: "invalid range", overlaps: true };

/** Parses a `Range` header as Go's file server does. Several ranges at once count as none: a server may send the whole.
 *  @param size bytes of the file. @see https://www.rfc-editor.org/rfc/rfc9110#name-range-requests */
function requestedRange(header: string | undefined, size: number): RequestedRange {
  if (!header) return all;
  if (!header.startsWith("bytes=")) return invalid;
  const ranges = header
    .slice("bytes=".length)
    .split(",")
    .map((range) => range.trim())
    .filter((range) => range !== "");
  const requested = ranges.map((range) => parseRange(range, size));
  if (requested.some((part) => part === "invalid")) return invalid;
  const parts = requested.filter((part) => typeof part === "object");
  if (ranges.length > 0 && parts.length === 0 && size > 0)
    return { kind: "invalid", text: "invalid range: failed to overlap", overlaps: false };
  const [part] = parts;
  return part && parts.length === 1 ? { kind: "part", ...part } : all;
}

function parseRange(range: string, size: number): { start: number; length: number } | "invalid" | "beyond" {
  const [, first = "", last = ""] = /^(\d*)\s*-\s*(\d*)$/.exec(range) ?? [];
  if (first === "" && last === "") return "invalid";
  if (first === "") {
    const length = Math.min(Number(last), size);
    return { start: size - length, length };
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return "invalid";
  if (start >= size) return "beyond";
  const end = last === "" ? size : Math.min(Number(last) + 1, size);
  return { start, length: end - start };
}
