import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import { createDockerClient } from "../../../../providers/docker/client/client.ts";
import { createResponseCache } from "../../../../providers/docker/client/response-cache.ts";
import { createContainerFactCache } from "../../../../providers/docker/container-facts.ts";
import type { DockerParts } from "../../../../providers/docker/parts.ts";
import { createLogger } from "../../../../src/lib/log.ts";
import { type FakeClock, fakeClock } from "../../../fakes/clock.ts";
import { fakeHost } from "../../../fakes/host.ts";

export interface RawCall {
  readonly method: string;
  /** Without the API's version. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

export interface RawEngine extends AsyncDisposable {
  readonly parts: DockerParts;
  readonly clock: FakeClock;
  /** Lines of the provider's log. */
  readonly lines: readonly string[];
}

const socket = "/run/docker.sock";

/** A daemon with API 1.41 on a fake host that writes raw responses, byte by byte if wanted. */
export async function rawEngine(answer: (call: RawCall) => void, sandboxImage = "pause:1"): Promise<RawEngine> {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const lines: string[] = [];
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://engine");
    response.setHeader("Connection", "close");
    if (pathname === "/version") return void response.end('{"ApiVersion":"1.41","Version":"20.10.24"}');
    answer({
      method: request.method ?? "",
      path: pathname.replace(/^\/v1\.\d+/, ""),
      query: searchParams,
      request,
      response,
    });
  });
  const listener = await host.listen({ unix: socket }, (connection) => void server.emit("connection", connection));
  const docker = createDockerClient({ socket, host, requestTimeoutMs: 60_000, clock });
  return {
    clock,
    lines,
    parts: {
      docker,
      config: { socket, network: "graftlet-n1", sandboxImage, inPod: false },
      nodeName: "n1",
      containerLogs: { maxSizeBytes: 10 * 1024 * 1024, maxFiles: 5 },
      host,
      clock,
      log: createLogger(9, { write: (line: string) => void lines.push(line) }),
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
