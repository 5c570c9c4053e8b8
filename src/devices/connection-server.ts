import type { Duplex } from "node:stream";
import type { ConnectionInjector, Server } from "@grpc/grpc-js";

/** A gRPC server on connections that the caller accepts. */
export interface ConnectionServer {
  take(connection: Duplex): void;
  close(): void;
}

/** What a first connection starts. */
export interface StartedServer {
  readonly server: Server;
  readonly injector: ConnectionInjector;
}

/** Costs nothing before somebody comes. */
export function createConnectionServer(start: () => StartedServer): ConnectionServer {
  let serving: StartedServer | undefined;
  return {
    take(connection) {
      connection.on("error", () => connection.destroy());
      serving ??= start();
      serving.injector.injectConnection(connection);
    },
    close() {
      serving?.injector.destroy();
      serving?.server.forceShutdown();
    },
  };
}
