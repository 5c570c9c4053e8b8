import { type IncomingMessage, createServer } from "node:http";
import { createDockerClient } from "../../../../providers/docker/client/client.ts";
import { createResponseCache } from "../../../../providers/docker/client/response-cache.ts";
import { createContainerFactCache } from "../../../../providers/docker/container-facts.ts";
import type { DockerParts } from "../../../../providers/docker/parts.ts";
import { silentLog } from "../../../../src/lib/log.ts";
import { fakeClock } from "../../../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../../../fakes/host.ts";

export interface EngineCall {
  readonly method: string;
  /** Without the API's version. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface EngineAnswer {
  readonly status: number;
  readonly body?: unknown;
}

export interface FakeEngine extends AsyncDisposable {
  readonly parts: DockerParts & { readonly host: FakeHost };
  /** All calls except those for the version, in order. */
  readonly calls: readonly EngineCall[];
}

const socket = "/run/docker.sock";

/** A daemon with API 1.41 on a fake host, with scripted responses, and a provider's parts for it. */
export async function fakeEngine(answer: (call: EngineCall) => EngineAnswer): Promise<FakeEngine> {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const calls: EngineCall[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://engine");
    const reply = ({ status, body }: EngineAnswer) => {
      const text = status === 204 || status === 304 ? undefined : JSON.stringify(body ?? {});
      response.writeHead(status, { "Content-Type": "application/json", Connection: "close" }).end(text);
    };
    if (url.pathname === "/version") return reply({ status: 200, body: { ApiVersion: "1.41", Version: "20.10.24" } });
    void readBody(request).then((body) => {
      const path = url.pathname.replace(/^\/v1\.\d+/, "");
      const call = { method: request.method ?? "", path, query: url.searchParams, body };
      calls.push(call);
      reply(answer(call));
    });
  });
  const listener = await host.listen({ unix: socket }, (connection) => void server.emit("connection", connection));
  const docker = createDockerClient({ socket, host, requestTimeoutMs: 60_000, clock });
  return {
    calls,
    parts: {
      docker,
      config: { socket, network: "graftlet-n1", sandboxImage: "pause:1", inPod: false },
      nodeName: "n1",
      containerLogs: { maxSizeBytes: 10 * 1024 * 1024, maxFiles: 5 },
      host,
      clock,
      log: silentLog(),
      facts: createContainerFactCache(),
      cache: createResponseCache(),
    },
    async [Symbol.asyncDispose]() {
      docker.close();
      await listener[Symbol.asyncDispose]();
      server.close();
    },
  };
}

async function readBody(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const text = (await request.setEncoding("utf8").toArray()).join("");
  const body: unknown = JSON.parse(text || "{}");
  return typeof body === "object" && body !== null ? { ...body } : {};
}
