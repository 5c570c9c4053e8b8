import { once } from "node:events";
import { WebSocket } from "ws";
import type { Credentials } from "../api/credentials.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { joinHostPort } from "../lib/http-get.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort, untilAborted } from "../lib/runnables.ts";
import type { EndpointSlice } from "../objects.ts";
import { createFailureLog } from "../lib/retry.ts";
import type { Clock } from "../lib/clock.ts";
import { type ConnectionMultiplexer, type MultiplexerDeps, createMultiplexer } from "./multiplexer.ts";
import { decodeMessage, encodeMessage, type TunnelMessage } from "./messages.ts";

/** A distribution whose API servers dial kubelets through a tunnel that each node opens. */
export type Distribution = "k3s" | "rke2";

export interface TunnelDeps extends ClockAndLog {
  /** The cluster's distribution; undefined if it uses no tunnels. Resolves once it is known. */
  readonly distribution: (signal: AbortSignal) => Promise<Distribution | undefined>;
  /** The node's credentials: the server identifies the tunnel by the node's name in them. */
  readonly credentials: () => Promise<Pick<Credentials, "tls" | "headers">>;
  /** Addresses of the API servers. */
  readonly servers: {
    list(): readonly EndpointSlice[];
    onChange(hear: () => void): () => void;
    ready(signal: AbortSignal): Promise<void>;
    /** Watches the addresses while it runs. */
    run?(signal: AbortSignal): Promise<void>;
  };
  /** Port of the kubelet API in the Node's status. */
  readonly advertisedPort: number;
  /** Address at which the kubelet API actually listens. */
  readonly kubelet: { readonly host: string; readonly port: number };
}

export type Tunnels = ReturnType<typeof createTunnels>;

/** Port of the server that accepts tunnels; undefined for the API server's own. */
const tunnelPorts: Readonly<Record<Distribution, number | undefined>> = { k3s: undefined, rke2: 9345 };
/** Delay before a tunnel is reopened, milliseconds: that of remotedialer's ClientConnect. (The k3s agent waits one second.) */
const reconnectDelayMs = 5_000;
const handshakeTimeoutMs = 10_000;

/** Keeps a tunnel open to each API server of a k3s or RKE2 cluster. Through it the server reaches this node's kubelet API and nothing else.
 *  @see https://docs.k3s.io/networking/basic-network-options#control-plane-egress-selector-configuration */
export function createTunnels(deps: TunnelDeps) {
  const { clock, log, servers } = deps;
  const open = new Map<string, AbortController>();
  const connected = new Set<string>();
  const maintain = async (url: string, address: string, signal: AbortSignal) => {
    const failures = createFailureLog(log, "cannot open a tunnel to the API server; retrying");
    while (!signal.aborted) {
      try {
        await openTunnel(deps, url, () => void connected.add(address), signal);
      } catch (error) {
        if (!signal.aborted) failures.failed(error, { server: address });
      }
      connected.delete(address);
      await clock.sleep(reconnectDelayMs * clock.jitter(0.8, 1.2), signal).catch(() => undefined);
    }
  };
  return {
    name: "tunnels to the API servers",
    /** Servers with an open tunnel, each as `address:port`. */
    connected: (): readonly string[] => [...connected].sort(),
    async run(signal: AbortSignal): Promise<void> {
      const distribution = await deps.distribution(signal).catch(() => undefined);
      if (signal.aborted || distribution === undefined) return onAbort(signal);
      const running = new Set<Promise<void>>([servers.run?.(signal) ?? Promise.resolve()]);
      await servers.ready(signal).catch(() => undefined);
      const update = () => {
        const wanted = new Set(serverAddresses(servers.list(), tunnelPorts[distribution]));
        for (const [place, stop] of open) {
          if (wanted.has(place)) continue;
          open.delete(place);
          stop.abort();
        }
        for (const place of wanted) {
          if (open.has(place) || signal.aborted) continue;
          const stop = new AbortController();
          open.set(place, stop);
          const maintained = maintain(
            `wss://${place}/v1-${distribution}/connect`,
            place,
            AbortSignal.any([signal, stop.signal]),
          );
          running.add(maintained);
          void maintained.finally(() => running.delete(maintained));
        }
      };
      const unsubscribe = servers.onChange(update);
      update();
      await onAbort(signal);
      unsubscribe();
      await Promise.all(running);
    },
  };
}

/** Addresses of the API servers in the EndpointSlices of the Service `kubernetes`. */
function serverAddresses(slices: readonly EndpointSlice[], port: number | undefined): readonly string[] {
  return slices.flatMap(({ endpoints, ports: slicePorts }) => {
    const serverPort = port ?? slicePorts?.find(({ name }) => name === "https")?.port ?? slicePorts?.[0]?.port ?? 6443;
    return (endpoints ?? []).flatMap(({ addresses }) => addresses.map((address) => joinHostPort(address, serverPort)));
  });
}

async function openTunnel(deps: TunnelDeps, url: string, onOpen: () => void, signal: AbortSignal): Promise<void> {
  const { credentials, advertisedPort, kubelet, clock, log } = deps;
  const { tls, headers } = await credentials();
  const { servername: _ofTheApiServer, ...own } = tls;
  const server = new WebSocket(url, {
    ...own,
    headers,
    handshakeTimeout: handshakeTimeoutMs,
    perMessageDeflate: false,
  });
  server.on("error", () => undefined);
  const resolveTarget = (protocol: string, address: string) =>
    protocol === "tcp" && [`127.0.0.1:${advertisedPort}`, `[::1]:${advertisedPort}`].includes(address)
      ? kubelet
      : undefined;
  let session: Promise<void> | undefined;
  // Synchronously in the event: the server's first message may arrive in the same chunk as the handshake response.
  server.once("open", () => {
    onOpen();
    log.info({ url }, "opened a tunnel from the API server to the kubelet API");
    session = serveSession(server, { resolveTarget, clock }, signal);
  });
  const refused = once(server, "unexpected-response").then(([, answer]: { statusCode?: number }[]) => {
    throw new CodedError(
      "permission_denied",
      `tunnel handshake refused: HTTP ${answer?.statusCode ?? "without a status"}`,
    );
  });
  refused.catch(() => undefined);
  try {
    await untilAborted(Promise.race([once(server, "open"), refused]), signal);
  } catch (error) {
    server.terminate();
    throw error;
  } finally {
    await session;
  }
}

interface SessionDeps extends Pick<MultiplexerDeps, "resolveTarget"> {
  readonly clock: Pick<Clock, "sleep">;
}

/** remotedialer's intervals, milliseconds: the peer gives up after a minute without a ping. */
const pingIntervalMs = 5_000;
const connectionListIntervalMs = 60_000;
/** Time without any message after which the server is considered dead, milliseconds. */
const silenceTimeoutMs = 30_000;

/** Serves the connections that an API server dials through a tunnel, until the tunnel closes or the signal aborts. @throws CodedError
 *  unavailable if the server is silent for too long, or sends a malformed message. */
export async function serveSession(
  server: WebSocket,
  { resolveTarget, clock }: SessionDeps,
  signal: AbortSignal,
): Promise<void> {
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  let failure: { readonly error: unknown } | undefined;
  const fail = (error: unknown) => {
    failure ??= { error };
    over.abort();
  };
  let messages = 0n;
  const send = (message: TunnelMessage, sent?: () => void) => {
    messages += 1n;
    if (server.readyState === server.OPEN) server.send(encodeMessage(message, messages), () => sent?.());
  };
  const multiplexer = createMultiplexer({ resolveTarget, send, unsentBytes: () => server.bufferedAmount });
  server.on("message", (bytes: Buffer) => {
    // Messages already read are delivered even after the end: a connection opened then would never be closed.
    if (until.aborted) return;
    try {
      const message = decodeMessage(bytes);
      if (message) multiplexer.handle(message);
    } catch (error) {
      fail(error);
    }
  });
  server.on("error", fail);
  void sendHeartbeats(server, { multiplexer, send, clock, fail }, until);
  await Promise.race([once(server, "close").catch(() => undefined), onAbort(until)]);
  over.abort();
  server.terminate();
  multiplexer.close();
  if (failure && !signal.aborted)
    throw new CodedError("unavailable", messageOf(failure.error), { cause: failure.error });
}

interface HeartbeatDeps extends Pick<SessionDeps, "clock"> {
  readonly multiplexer: Pick<ConnectionMultiplexer, "connections">;
  readonly send: (message: TunnelMessage) => void;
  readonly fail: (error: unknown) => void;
}

/** Sends pings and the list of open connections (the server closes those not listed), and detects a silent server. */
async function sendHeartbeats(
  server: WebSocket,
  { multiplexer, send, clock, fail }: HeartbeatDeps,
  until: AbortSignal,
): Promise<void> {
  let silentMs = 0;
  for (const event of ["message", "ping", "pong"] as const) server.on(event, () => (silentMs = 0));
  for (let ms = pingIntervalMs; ; ms += pingIntervalMs) {
    await clock.sleep(pingIntervalMs, until).catch(() => undefined);
    if (until.aborted || server.readyState !== server.OPEN) return;
    silentMs += pingIntervalMs;
    if (silentMs > silenceTimeoutMs)
      return fail(new CodedError("unavailable", `the server has sent nothing for ${silenceTimeoutMs / 1000} s`));
    server.ping();
    if (ms % connectionListIntervalMs === 0) send({ kind: "known", connections: multiplexer.connections() });
  }
}
