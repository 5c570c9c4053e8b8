import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import { createListening, serveHttps } from "../server/listen.ts";
import type { KubeletServer } from "../server/server.ts";
import {
  type UnauthenticatedConnections,
  createUnauthenticatedConnections,
} from "../server/unauthenticated-connections.ts";
import type { Reports } from "../report/notes.ts";
import { type RefusedRequest, isLoopback, crossSiteRefusal, securityHeaders } from "./access.ts";
import { type Feed, createFeed } from "./feed.ts";
import { type AuthorizeViewer, tlsListener, plainListener } from "./listener.ts";
import { serveFeed } from "./stream.ts";
import { gunzipSync } from "node:zlib";

export interface PageDeps extends ClockAndLog {
  /** GraftletConfiguration.pageAddress and pagePort. */
  readonly address: string;
  readonly port: number;
  readonly reports: Reports;
  /** graftlet's version. */
  readonly version: string;
}

/** Connection limits: for unauthenticated callers, and for authenticated ones. */
const connectionLimits = { maxUnauthenticated: 64, maxAuthenticated: 256 };

/** The status page of the process's nodes: plain HTTP if only this machine can reach it, otherwise TLS with the kubelet API's
 *  authentication and authorization. Nothing is measured while no page is open. `run` throws a CodedError, one sentence, if it cannot
 *  listen.
 *  @param open true for plain HTTP. */
export function createPage(deps: PageDeps, open = isLoopback(deps.address)): KubeletServer {
  const { address, port, clock, log } = deps;
  const listening = createListening("page", log);
  const unauthenticated = createUnauthenticatedConnections(connectionLimits);
  const feed = createFeed(deps);
  const serving: Runnable = {
    name: "page server",
    async run(signal) {
      const files = await pageFiles();
      const answer = (admit: AuthorizeViewer) =>
        requestHandler({ ...deps, files, feed, admit, unauthenticated, stopped: signal });
      const { server, end } = open ? plainListener(answer) : tlsListener(deps, answer);
      const at = { address, port, addressField: "pageAddress", portField: "pagePort" };
      try {
        await serveHttps({ server, at, unauthenticated, listening, clock, log }, signal);
      } finally {
        end();
      }
    },
  };
  return {
    name: "page",
    ready: listening.ready,
    address: listening.address,
    run: (signal) => runGroup([feed, serving], signal),
  };
}

interface RequestHandlerDeps extends PageDeps {
  readonly files: PageFiles;
  readonly feed: Feed;
  readonly admit: AuthorizeViewer;
  readonly unauthenticated: UnauthenticatedConnections;
  /** Aborts when the server stops. */
  readonly stopped: AbortSignal;
}

function requestHandler(deps: RequestHandlerDeps): RequestListener {
  return (request, response) => {
    for (const [name, value] of Object.entries(securityHeaders)) response.setHeader(name, value);
    handleRequest(deps, request, response).catch((err: unknown) => {
      deps.log.error({ err }, "cannot serve the page");
      response.destroy();
    });
  };
}

async function handleRequest(
  deps: RequestHandlerDeps,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { feed, files, admit, unauthenticated, stopped, clock } = deps;
  const path = (request.url ?? "").replace(/\?.*$/, "");
  if (request.method !== "GET" && request.method !== "HEAD") return refuse(request, response, notRead);
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const refused = crossSiteRefusal(path, request.headers);
  const viewer = refused ?? (await admit(request, AbortSignal.any([stopped, gone.signal])));
  if ("status" in viewer) return refuse(request, response, viewer);
  unauthenticated.authenticated(request.socket);
  const file = files.get(path);
  if (file) return sendFile(request, response, file);
  if (path !== "/feed") return refuse(request, response, unknown);
  if (request.method === "HEAD") return void response.writeHead(200, { "Content-Type": "text/event-stream" }).end();
  serveFeed(response, { feed, viewer, clock, stopped });
}

const notRead: RefusedRequest = { status: 405, text: "this page is read-only\n" };
const unknown: RefusedRequest = { status: 404, text: "404 page not found\n" };

function refuse(request: IncomingMessage, response: ServerResponse, { status, text }: RefusedRequest): void {
  // Nothing more is read from a refused client. After a 401 the client may present another certificate on a new connection.
  if (!request.complete || status === 401) response.setHeader("Connection", "close");
  if (status === 405) response.setHeader("Allow", "GET, HEAD");
  response.writeHead(status, { "Content-Type": "text/plain; charset=utf-8" }).end(text);
}

function sendFile(request: IncomingMessage, response: ServerResponse, file: PageFile): void {
  const compressed = /\bgzip\b/.test(request.headers["accept-encoding"] ?? "");
  const body = compressed ? file.gzip : plain(file);
  if (compressed) response.setHeader("Content-Encoding", "gzip");
  response.setHeader("Vary", "Accept-Encoding");
  response.writeHead(200, { "Content-Type": file.type, "Content-Length": body.length });
  response.end(request.method === "HEAD" ? undefined : body);
}

/** Compressed files of the page, by path. */
type PageFiles = ReadonlyMap<string, PageFile>;

interface PageFile {
  readonly type: string;
  readonly gzip: Buffer;
}

/** Set by tools/build.ts in the built program: JSON of the files by name, each gzipped and base64-encoded. A string, so that the branch
 *  for running from source is eliminated. */
declare const builtPage: string;

const types: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** Returns the page's files from the built program, or bundles them from source. @throws if esbuild is not installed. */
async function pageFiles(): Promise<PageFiles> {
  const built =
    typeof builtPage === "undefined"
      ? (await (await import("./bundle.ts")).bundlePage()).files
      : (JSON.parse(builtPage) as Readonly<Record<string, string>>);
  return new Map(
    Object.entries(built).map(([name, base64]) => [
      name === "page.html" ? "/" : `/${name}`,
      { type: types[name.slice(name.lastIndexOf(".") + 1)] ?? "", gzip: Buffer.from(base64, "base64") },
    ]),
  );
}

/** Uncompressed content of a file. */
function plain({ gzip }: PageFile): Buffer {
  return gunzipSync(gzip);
}
