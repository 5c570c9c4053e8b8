import { once } from "node:events";
import { type IncomingMessage, createServer } from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import type { TestContext } from "node:test";
import { connect as connectTls } from "node:tls";
import { systemClock } from "../../../src/lib/clock.ts";
import type { StreamEndpoint } from "../../../src/seams/runtime.ts";
import type { ConnectPort, RunCommand } from "../../../src/seams/runtime.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { type ServeUpgrade, refuse, serveCommand, serveForward } from "../../fakes/stream-server.ts";
import { type WebSocketClient, dialWebSocket } from "../streams/clients.ts";
import { type Running, adminToken, runtimeOf, start } from "./harness.ts";

/** A kubelet API for a runtime whose streaming server only speaks SPDY, like that of containerd 1.6. */
export interface SpdyRuntime extends AsyncDisposable {
  readonly server: Running;
  /** Requests received. */
  readonly requests: readonly IncomingMessage[];
  /** Breaks all connections. */
  cut(): void;
}

const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns", uid: "uid-1" });
const clock = systemClock();

/** @param run executes each command; @param forward handles each forwarded connection. */
export async function startSpdyRuntime(
  t: TestContext,
  { run, forward }: { readonly run?: RunCommand; readonly forward?: ConnectPort },
): Promise<SpdyRuntime> {
  const requests: IncomingMessage[] = [];
  const connections = new Set<Duplex>();
  let serve: ServeUpgrade = () => Promise.resolve({ status: 404, text: "404 page not found" });
  const http = createServer();
  http.on("connection", (socket) => connections.add(socket));
  http.on("upgrade", (request, socket, head) => {
    requests.push(request);
    socket.on("error", () => undefined);
    void serve(request, { socket, head }).then((refusal) => refusal && refuse(socket, refusal));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const cut = () => connections.forEach((socket) => socket.destroy());
  t.after(() => {
    http.close();
    cut();
  });
  const address = http.address();
  const port = typeof address === "object" && address ? address.port : 0;
  const endpoint: StreamEndpoint = {
    path: "/token",
    host: `127.0.0.1:${port}`,
    async dial() {
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      await once(socket, "connect");
      return socket;
    },
  };
  const runtime = runtimeOf({
    listContainers: () => Promise.resolve([{ id: "cid", createdAt: 1n }] as never),
    listPodSandbox: () => Promise.resolve([{ id: "sb", createdAt: 1n }] as never),
    exec: (request) => {
      if (run) serve = serveCommand(request, run, clock);
      return Promise.resolve(endpoint);
    },
    portForward: ({ port: ports }) => {
      if (forward) serve = serveForward(ports, forward, clock);
      return Promise.resolve(endpoint);
    },
  });
  const server = await start({ pods: [pod], deps: { runtime } });
  return { server, requests, cut, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

/** The admin's WebSocket to a path of the kubelet API. */
export function webSocketTo(
  { port }: Running,
  path: string,
  ...protocols: readonly string[]
): Promise<WebSocketClient> {
  const token = `base64url.bearer.authorization.k8s.io.${Buffer.from(adminToken).toString("base64url")}`;
  const dial = async () => {
    const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
    await once(socket, "secureConnect");
    return socket;
  };
  return dialWebSocket({ path, host: `127.0.0.1:${port}`, dial }, ...protocols, token);
}
