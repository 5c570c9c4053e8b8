import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { BinaryReader } from "@bufbuild/protobuf/wire";
import { type ConnectionInjector, Server, ServerCredentials } from "@grpc/grpc-js";
import { decodeBounded, pluginLimits } from "../lib/bounded-decode.ts";
import { type TargetBudget, chargeStream } from "../lib/target-budget.ts";

/** A gRPC server on accepted connections. */
export type ConnectionServer = ReturnType<typeof createConnectionServer>;

/** Maximum number of concurrent calls per connection. */
const maxConcurrentStreams = 100;

/** Allocates nothing before the first connection.
 *  @param addServices called with the first connection. @param budget charged with data received from remote connections. */
export function createConnectionServer(addServices: (server: Server) => void, budget: TargetBudget | undefined) {
  let serving: { readonly server: Server; readonly injector: ConnectionInjector } | undefined;
  const start = () => {
    const server = new Server({
      "grpc.max_concurrent_streams": maxConcurrentStreams,
      "grpc.max_receive_message_length": pluginLimits.maxMessageBytes,
    });
    addServices(server);
    return { server, injector: server.createConnectionInjector(ServerCredentials.createInsecure()) };
  };
  return {
    take(connection: Duplex): void {
      connection.on("error", () => connection.destroy());
      serving ??= start();
      serving.injector.injectConnection(connection);
      // For local sockets, HTTP/2 reads natively, bypassing JavaScript streams.
      if (!(connection instanceof Socket)) chargeStream(connection, budget);
    },
    close(): void {
      serving?.injector.destroy();
      serving?.server.forceShutdown();
    },
  };
}

interface GeneratedMethod {
  readonly requestDeserialize: (value: BinaryReader | Buffer) => unknown;
}

/** A ts-proto service whose requests are decoded within the size limits for plugins and charged to the target's budget. */
export function boundedService<S extends Readonly<Record<keyof S, GeneratedMethod>>>(
  service: S,
  budget: TargetBudget | undefined,
): S {
  const bounded = Object.entries<GeneratedMethod>(service).map(([name, method]) => {
    const requestDeserialize = (bytes: Buffer) => decodeBounded(method.requestDeserialize, bytes, pluginLimits, budget);
    return [name, { ...method, requestDeserialize }];
  });
  return Object.fromEntries(bounded) as S;
}
