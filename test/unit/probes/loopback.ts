import { once } from "node:events";
import { type AddressInfo, type Server, connect } from "node:net";
import { CodedError, abortError } from "../../../src/lib/errors.ts";
import type { Address, Host } from "../../../src/seams/host.ts";

/** A host that dials this machine's loopback, whatever the address named, and notes what was asked for. */
export function loopbackHost(): Pick<Host, "dial"> & { readonly dialled: Address[] } {
  const dialled: Address[] = [];
  return {
    dialled,
    async dial(to, signal) {
      dialled.push(to);
      if ("unix" in to) throw new CodedError("invalid_argument", "probes dial no unix sockets");
      const socket = connect({ port: to.port, host: "127.0.0.1", allowHalfOpen: true });
      try {
        await once(socket, "connect", { signal });
        return socket;
      } catch (cause) {
        socket.destroy();
        if (signal?.aborted) throw abortError(signal);
        throw new CodedError("unavailable", `cannot connect: ${String(cause)}`, { cause });
      }
    },
  };
}

/** Starts a server on the loopback; gives its port. */
export async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** A port on which nobody listens. */
export async function freePort(): Promise<number> {
  const { createServer } = await import("node:net");
  const server = createServer();
  const port = await listen(server);
  server.close();
  await once(server, "close");
  return port;
}
