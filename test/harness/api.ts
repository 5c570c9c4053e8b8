import { request as httpRequest, type IncomingMessage } from "node:http";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import type { Cluster } from "./cluster.ts";
import { waitFor } from "./wait.ts";

/** The API server said no: its HTTP status and its words. */
export class Refused extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** How a patch is written. */
export type PatchType = "strategic-merge-patch" | "merge-patch" | "json-patch";

/** The API server as its admin sees it, without a kubectl process for each look. */
export interface Api extends AsyncDisposable {
  get<T>(path: string): Promise<T>;
  text(path: string): Promise<string>;
  create<T>(path: string, object: object): Promise<T>;
  patch<T>(path: string, patch: object, type?: PatchType): Promise<T>;
  remove(path: string, options?: { readonly gracePeriodSeconds?: number }): Promise<void>;
  /** Calls back for each event of a watch, in order; resolves when the watch ends. */
  watch<T>(path: string, heard: (type: string, object: T) => void, signal: AbortSignal): Promise<void>;
}

/** Opens the API through `kubectl proxy` on a Unix socket, which ends with the cluster at the latest. */
export async function openApi(cluster: Cluster): Promise<Api> {
  const socket = join(cluster.layout.dir, "api.sock");
  rmSync(socket, { force: true });
  const proxy = cluster.startKubectl(["proxy", `--unix-socket=${socket}`, "--disable-filter"], { stdio: "ignore" });
  const send = sender(socket);
  await waitFor("kubectl proxy", async () => (await text(await send("GET", "/readyz"))) === "ok", { everyMs: 50 });
  const answer = async (method: string, path: string, body?: object, type = "application/json"): Promise<string> => {
    const response = await send(method, path, body && JSON.stringify(body), type);
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
      JSON.parse(await answer("PATCH", path, patch, `application/${type}+json`)) as T,
    remove: async (path, options = {}) =>
      void (await answer("DELETE", path, { kind: "DeleteOptions", apiVersion: "v1", ...options })),
    async watch<T>(path: string, heard: (type: string, object: T) => void, signal: AbortSignal) {
      const response = await send("GET", path, undefined, undefined, signal);
      for await (const line of createInterface({ input: response })) {
        const { type, object } = JSON.parse(line) as { type: string; object: T };
        heard(type, object);
      }
    },
    async [Symbol.asyncDispose]() {
      const { pid } = proxy;
      proxy.kill("SIGKILL");
      if (pid !== undefined)
        await waitFor("the end of kubectl proxy", () => proxy.exitCode !== null || proxy.signalCode !== null, {
          everyMs: 20,
        });
    },
  };
}

type Send = (
  method: string,
  path: string,
  body?: string,
  type?: string,
  signal?: AbortSignal,
) => Promise<IncomingMessage>;

function sender(socketPath: string): Send {
  return (method, path, body, type, signal) =>
    new Promise((resolve, reject) => {
      const headers = body === undefined ? {} : { "content-type": type, "content-length": Buffer.byteLength(body) };
      const request = httpRequest(
        { socketPath, method, path, headers, agent: false, ...(signal && { signal }) },
        resolve,
      );
      request.once("error", reject);
      request.end(body);
    });
}

function messageOf(body: string): string {
  try {
    return (JSON.parse(body) as { message?: string }).message ?? body;
  } catch {
    return body;
  }
}
