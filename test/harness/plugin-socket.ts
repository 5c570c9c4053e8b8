import { mkdirSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { Server, ServerCredentials, type status } from "@grpc/grpc-js";
import {
  PluginInfo,
  RegistrationService,
  type RegistrationStatus,
  RegistrationStatusResponse,
} from "../../src/gen/plugin-registration.ts";

/** Serves at a path, in the place of whatever is there. */
export async function serveAt(server: Server, path: string): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  rmSync(path, { force: true });
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
      error ? reject(error) : resolve(),
    ),
  );
}

/** The socket by which a plugin registers. */
export interface Registrar {
  /** What the node has said of the registration. */
  readonly told: readonly RegistrationStatus[];
  /** The socket goes. */
  stop(): void;
}

type Reply = (error: { code: status; details: string } | null, answer?: unknown) => void;

/** Offers a plugin for registration by a socket of its own in plugins_registry. */
export async function startRegistrar(path: string, info: Partial<PluginInfo>): Promise<Registrar> {
  const told: RegistrationStatus[] = [];
  const server = new Server();
  server.addService(RegistrationService, {
    getInfo: (_call: unknown, reply: Reply) => reply(null, PluginInfo.fromPartial(info)),
    notifyRegistrationStatus: ({ request }: { request: RegistrationStatus }, reply: Reply) => {
      told.push(request);
      reply(null, RegistrationStatusResponse.create());
    },
  });
  await serveAt(server, path);
  return {
    told,
    stop() {
      server.forceShutdown();
      rmSync(path, { force: true });
    },
  };
}
