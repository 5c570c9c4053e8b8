import type { Duplex } from "node:stream";
import { type ConnectionInjector, Server, ServerCredentials } from "@grpc/grpc-js";

/** A gRPC server on connections that the caller accepts. */
export interface ConnectionServer {
  take(connection: Duplex): void;
  close(): void;
}

/** Costs nothing before somebody comes. @param addServices called with the first connection. */
export function createConnectionServer(addServices: (server: Server) => void): ConnectionServer {
  let serving: { readonly server: Server; readonly injector: ConnectionInjector } | undefined;
  const start = () => {
    const server = new Server();
    addServices(server);
    return { server, injector: server.createConnectionInjector(ServerCredentials.createInsecure()) };
  };
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
