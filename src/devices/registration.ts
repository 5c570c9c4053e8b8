import type { Duplex } from "node:stream";
import { type ConnectionInjector, Server, ServerCredentials, type handleUnaryCall, status } from "@grpc/grpc-js";
import { Empty, type RegisterRequest, RegistrationService } from "../gen/device-plugin.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";

export interface RegistrationDeps {
  /** Registers a plugin. @throws with the message for the plugin. */
  readonly register: (request: RegisterRequest, signal: AbortSignal) => Promise<void>;
  readonly log: Logger;
}

/** Serves the Registration service on connections that the caller accepts. */
export interface RegistrationServer {
  take(connection: Duplex): void;
  close(): void;
}

/** Costs nothing before the first plugin comes.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#device-plugin-registration */
export function createRegistrationServer({ register, log }: RegistrationDeps): RegistrationServer {
  let serving: { readonly server: Server; readonly injector: ConnectionInjector } | undefined;
  const answer: handleUnaryCall<RegisterRequest, Empty> = (call, reply) => {
    const given = new AbortController();
    call.on("cancelled", () => given.abort());
    const { resourceName: resource } = call.request;
    register(call.request, given.signal).then(
      () => reply(null, Empty.create()),
      (error: unknown) => {
        log.warn({ err: error, resource }, "a device plugin could not be registered");
        reply({ code: status.UNKNOWN, details: messageOf(error) });
      },
    );
  };
  const start = () => {
    const server = new Server();
    server.addService(RegistrationService, { register: answer });
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
