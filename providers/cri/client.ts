import type { BinaryReader } from "@bufbuild/protobuf/wire";
import { Client, Metadata, connectivityState, credentials, status } from "@grpc/grpc-js";
import { decodeBounded, runtimeLimits } from "../../src/lib/bounded-decode.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import type { TargetBudget } from "../../src/lib/target-budget.ts";
import { codedCallError, codedStatus } from "./errors.ts";

/** One operation of a gRPC service, as ts-proto's service definitions describe it. */
export interface GrpcMethod<Request, Response> {
  readonly path: string;
  readonly requestSerialize: (value: Request) => Buffer;
  readonly responseDeserialize: (value: BinaryReader | Buffer) => Response;
}

/** Timeout of a unary call: milliseconds, or none except the signal. */
export type CallTimeout = number | "none";

/** A gRPC connection to a unix socket. It connects on the first call and reconnects automatically. While the socket does not respond, calls
 *  fail with `unavailable`: at once, or after `reconnectTimeoutMs`. */
export interface GrpcChannel {
  /** @param limit deadline of the call; the channel's own when omitted. @throws CodedError with the server's message. */
  call<Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    limit?: CallTimeout,
  ): Promise<Response>;
  /** Server stream. Ends when the signal aborts; throws when the stream breaks or the server ends it. */
  stream<Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): AsyncGenerator<Response>;
  close(): void;
}

export interface ChannelOptions {
  /** Absolute path of the socket. */
  readonly path: string;
  /** Deadline of an ordinary call, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Time that a call waits for a broken connection to be re-established, milliseconds. */
  readonly reconnectTimeoutMs?: number;
  /** Headers for the next unary call. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
  /** Charged with the memory of the responses. */
  readonly budget?: TargetBudget;
  readonly clock: Clock;
}

const { maxMessageBytes } = runtimeLimits;

/** Time after which a message stream yields to the event loop, milliseconds: the library delivers all received messages without a pause. */
const maxTurnMs = 20;

const channelOptions = {
  "grpc.max_receive_message_length": maxMessageBytes,
  "grpc.max_send_message_length": maxMessageBytes,
  "grpc.initial_reconnect_backoff_ms": 100,
  // A restarted runtime is found within a second, including the pause between relists.
  "grpc.max_reconnect_backoff_ms": 400,
  "grpc.enable_http_proxy": 0,
  // Nodes share no connection: closing one target's must not affect another's.
  "grpc.use_local_subchannel_pool": 1,
  // Per-call records that nothing reads.
  "grpc.enable_channelz": 0,
};

/** Keepalive pings are off: containerd refuses them, and a unix socket reports at once that its peer is gone. */
export function createGrpcChannel(options: ChannelOptions): GrpcChannel {
  const { path, requestTimeoutMs, reconnectTimeoutMs = 0, callHeaders, budget, clock } = options;
  const client = new Client(`unix:${path}`, credentials.createInsecure(), {
    ...channelOptions,
    ...(reconnectTimeoutMs > 0 && { "grpc.max_reconnect_backoff_ms": reconnectTimeoutMs / 2 }),
  });
  return {
    async call(method, request, signal, limit = requestTimeoutMs) {
      throwIfAborted(signal);
      if (reconnectTimeoutMs > 0) await waitForReconnect(client, clock.now() + reconnectTimeoutMs);
      const deadline = limit === "none" ? {} : { deadline: clock.now() + limit };
      const metadata = grpcMetadata(callHeaders?.());
      try {
        return await unary(client, method, request, { ...deadline, metadata, budget, signal });
      } catch (error) {
        throw codedCallError(error, signal);
      }
    },
    async *stream<Request, Response>(
      method: GrpcMethod<Request, Response>,
      request: Request,
      signal: AbortSignal,
      headers: Readonly<Record<string, string>> = {},
    ): AsyncGenerator<Response> {
      if (signal.aborted) return;
      const messages = client.makeServerStreamRequest(
        method.path,
        method.requestSerialize,
        (bytes: Buffer) => decodeBounded(method.responseDeserialize, bytes, runtimeLimits, budget),
        request,
        grpcMetadata(headers),
      );
      // The iteration below reports errors; an error after it ended has no reader.
      messages.on("error", () => {});
      const cancel = () => messages.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      let turnBegan = clock.monotonic();
      try {
        for await (const message of messages as AsyncIterable<Response>) {
          yield message;
          if (clock.monotonic() - turnBegan < maxTurnMs) continue;
          await clock.sleep(0);
          turnBegan = clock.monotonic();
        }
        if (!signal.aborted) throw new CodedError("unavailable", `the stream ${method.path} ended`);
      } catch (error) {
        if (!signal.aborted) throw codedCallError(error, signal);
      } finally {
        signal.removeEventListener("abort", cancel);
        cancel();
      }
    },
    close: () => client.close(),
  };
}

function grpcMetadata(headers: Readonly<Record<string, string>> = {}): Metadata {
  const metadata = new Metadata();
  for (const name in headers) metadata.set(name, headers[name] ?? "");
  return metadata;
}

/** Waits for a failed connection to be re-established. @param until milliseconds since the epoch. */
function waitForReconnect(client: Client, until: number): Promise<void> {
  return new Promise((resolve) => {
    if (client.getChannel().getConnectivityState(true) !== connectivityState.TRANSIENT_FAILURE) resolve();
    else client.waitForReady(until, () => resolve());
  });
}

interface UnaryOptions {
  /** Milliseconds since the epoch. */
  readonly deadline?: number;
  readonly metadata: Metadata;
  readonly budget: TargetBudget | undefined;
  readonly signal: AbortSignal;
}

/** `client.makeUnaryRequest` without interceptors, emitter and stack capture, which make up nine tenths of a call's cost: a node with many
 *  probes makes fifty calls a second. */
function unary<Request, Response>(
  client: Client,
  method: GrpcMethod<Request, Response>,
  request: Request,
  { deadline, metadata, budget, signal }: UnaryOptions,
): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const sent = method.requestSerialize(request);
  const call = client.getChannel().createCall(method.path, deadline ?? Number.POSITIVE_INFINITY, null, null, null);
  const cancel = () => call.cancelWithStatus(status.CANCELLED, "cancelled by the caller");
  signal.addEventListener("abort", cancel, { once: true });
  let message: Buffer | undefined;
  call.start(metadata, {
    onReceiveMetadata() {},
    onReceiveMessage(received: Buffer) {
      message = received;
    },
    onReceiveStatus({ code, details }) {
      signal.removeEventListener("abort", cancel);
      if (code !== status.OK) return reject(codedStatus(code, details));
      if (!message) return reject(new CodedError("unknown", `${method.path} returned no message`));
      try {
        resolve(decodeBounded(method.responseDeserialize, message, runtimeLimits, budget));
      } catch (error) {
        reject(error);
      }
    },
  });
  call.startRead();
  call.sendMessageWithContext({}, sent);
  call.halfClose();
  return promise;
}
