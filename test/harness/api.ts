import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import { readFileSync } from "node:fs";
import type { ClientRequest, IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { certificatesIn, pairIn } from "./certificates.ts";
import { addresses } from "./namespaces.ts";
import type { Layout } from "./state.ts";

/** The API server said no: its HTTP status and its words. */
export class Refused extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** How a patch is written. */
export type PatchType = "strategic-merge-patch" | "merge-patch" | "json-patch" | "apply-patch";

/** The API server as its admin sees it, without a kubectl process for each look. Disposing it ends what is still open. */
export interface Api extends Disposable {
  get<T>(path: string): Promise<T>;
  text(path: string): Promise<string>;
  create<T>(path: string, object: object): Promise<T>;
  patch<T>(path: string, patch: object, type?: PatchType): Promise<T>;
  remove(path: string, options?: { readonly gracePeriodSeconds?: number }): Promise<void>;
  /** Calls back for each event of a watch, in order; resolves when the watch ends. */
  watch<T>(path: string, heard: (type: string, object: T) => void, signal: AbortSignal): Promise<void>;
}

/** The command that leads connections to the cluster's socket on to its API server, which only its own network reaches. */
export function apiRelayArgv({ apiSocket }: Layout): string[] {
  const server = `TCP:${addresses.node}:${addresses.apiServerPort}`;
  return ["socat", `UNIX-LISTEN:${apiSocket},fork,unlink-early,backlog=128`, server];
}

/** The API of the cluster at `layout`, whose admin's certificate has been issued. */
export function openApi(layout: Layout): Api {
  const open = new Set<ClientRequest>();
  const connections = new Agent({ keepAlive: true });
  const send = sender(layout, open, connections);
  const answer = async (method: string, path: string, body?: object, type = "application/json"): Promise<string> => {
    const response = await send(method, path, { ...(body && { body: JSON.stringify(body) }), type });
    const said = await text(response);
    const status = response.statusCode ?? 0;
    if (status >= 300) throw new Refused(status, messageOf(said));
    return said;
  };
  return {
    get: async <T>(path: string) => JSON.parse(await answer("GET", path)) as T,
    text: (path) => answer("GET", path),
    create: async <T>(path: string, object: object) => JSON.parse(await answer("POST", path, object)) as T,
    patch: async <T>(path: string, patch: object, type: PatchType = "strategic-merge-patch") =>
      JSON.parse(
        await answer("PATCH", path, patch, `application/${type}+${type === "apply-patch" ? "yaml" : "json"}`),
      ) as T,
    remove: async (path, options = {}) =>
      void (await answer("DELETE", path, { kind: "DeleteOptions", apiVersion: "v1", ...options })),
    async watch<T>(path: string, heard: (type: string, object: T) => void, signal: AbortSignal) {
      const response = await send("GET", path, { signal });
      for await (const line of createInterface({ input: response })) {
        const { type, object } = JSON.parse(line) as { type: string; object: T };
        heard(type, object);
      }
    },
    [Symbol.dispose]() {
      for (const request of open) request.destroy();
      connections.destroy();
    },
  };
}

interface Sent {
  readonly body?: string;
  readonly type?: string;
  readonly signal?: AbortSignal;
}

type Send = (method: string, path: string, sent: Sent) => Promise<IncomingMessage>;

/** Requests use connections again. One that was cut meanwhile, with the API server, is found out by the request that comes to it,
 *  which is sent once more by a new one. @see https://nodejs.org/api/http.html#requestreusedsocket */
function sender(layout: Layout, open: Set<ClientRequest>, agent: Agent): Send {
  const admin = pairIn(layout.pki, "admin");
  const [ca, cert, key] = [certificatesIn(layout.pki).ca.cert, admin.cert, admin.key].map((file) => readFileSync(file));
  const server = { socketPath: layout.apiSocket, servername: "kubernetes" } as const;
  const send = (asked: RequestOptions, body: string | undefined): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const request = httpsRequest({ ...server, ca, cert, key, ...asked }, resolve);
      open.add(request);
      request.once("close", () => open.delete(request));
      request.once("error", (error: NodeJS.ErrnoException) => {
        if (request.reusedSocket && wasCut(error)) resolve(send({ ...asked, agent: false }, body));
        else reject(error);
      });
      request.end(body);
    });
  return (method, path, { body, type, signal }) => {
    const headers = body === undefined ? {} : { "content-type": type, "content-length": Buffer.byteLength(body) };
    return send({ method, path, headers, agent, ...(signal && { signal }) }, body);
  };
}

/** The error of a connection that the other side had ended: told by its answer, or by its silence to what was written. */
function wasCut({ code }: NodeJS.ErrnoException): boolean {
  return code === "ECONNRESET" || code === "EPIPE";
}

function messageOf(body: string): string {
  try {
    return (JSON.parse(body) as { message?: string }).message ?? body;
  } catch {
    return body;
  }
}
