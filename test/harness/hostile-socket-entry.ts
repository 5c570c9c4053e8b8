import { createServer } from "node:net";
import { dockerAttacks } from "./hostile-engine.ts";
import { grpcAttacks } from "./hostile-http2.ts";

/** A hostile server on a unix socket, in a process of its own: `node hostile-socket-entry.ts grpc|docker ATTACK SOCKET`. */
const [protocol, name = "", socket] = process.argv.slice(2);
const attack = (protocol === "docker" ? dockerAttacks : grpcAttacks)[name];
if (!attack) throw new Error(`there is no attack ${name}`);
const server = createServer((connection) => {
  connection.on("error", () => undefined);
  attack(connection);
});
server.listen(socket, () => process.send?.("listening"));
process.on("disconnect", () => process.exit());
