import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { type GrpcChannel, createGrpcChannel } from "../../../../providers/cri/client.ts";
import { localHost } from "../../../../providers/local/host.ts";
import { systemClock } from "../../../../src/lib/clock.ts";

/** A temporary socket path, a channel to it, and servers started on it on demand. */
export interface SocketRig extends AsyncDisposable {
  readonly path: string;
  readonly channel: GrpcChannel;
  /** Serves what `register` adds; the returned function stops it at once. */
  serve(register: (server: Server) => void): Promise<() => void>;
}

export function socketRig(requestTimeoutMs = 5000): SocketRig {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-cri-"));
  const path = join(folder, "runtime.sock");
  const clock = systemClock();
  const channel = createGrpcChannel({ host: localHost({ clock }), path, requestTimeoutMs, clock });
  const servers: Server[] = [];
  return {
    path,
    channel,
    async serve(register) {
      const server = new Server({ "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 });
      register(server);
      servers.push(server);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      );
      await promise;
      return () => server.forceShutdown();
    },
    async [Symbol.asyncDispose]() {
      channel.close();
      for (const server of servers) server.forceShutdown();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
