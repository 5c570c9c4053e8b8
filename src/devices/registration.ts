import { type handleUnaryCall, status } from "@grpc/grpc-js";
import { Empty, type RegisterRequest, RegistrationService } from "../gen/device-plugin.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import { type ConnectionServer, boundedService, createConnectionServer } from "./connection-server.ts";

export interface RegistrationDeps {
  /** Registers a plugin. @throws with the message for the plugin. */
  readonly register: (request: RegisterRequest, signal: AbortSignal) => Promise<void>;
  readonly budget?: TargetBudget;
  readonly log: Logger;
}

/** Serves the Registration service.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#device-plugin-registration */
export function createRegistrationServer({ register, budget, log }: RegistrationDeps): ConnectionServer {
  const answer: handleUnaryCall<RegisterRequest, Empty> = (call, reply) => {
    const given = new AbortController();
    call.on("cancelled", () => given.abort());
    const { resourceName: resource } = call.request;
    register(call.request, given.signal).then(
      () => reply(null, Empty.create()),
      (error: unknown) => {
        log.warn({ err: error, resource }, "cannot register device plugin");
        reply({ code: status.UNKNOWN, details: messageOf(error) });
      },
    );
  };
  return createConnectionServer(
    (server) => server.addService(boundedService(RegistrationService, budget), { register: answer }),
    budget,
  );
}
