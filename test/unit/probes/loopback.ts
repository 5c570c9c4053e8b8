import { once } from "node:events";
import { connect } from "node:net";
import { CodedError, abortError } from "../../../src/lib/errors.ts";
import type { Address, Host } from "../../../src/seams/host.ts";

/** A host that dials this machine's loopback, whatever the address, and records the requested ones. */
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
