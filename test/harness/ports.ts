import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";

/** Starts a server on the loopback, or on another address of this machine; gives its port. */
export async function listen(server: Server, address = "127.0.0.1"): Promise<number> {
  server.listen(0, address);
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** A port on which nobody listens. */
export async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listen(server);
  server.close();
  await once(server, "close");
  return port;
}
