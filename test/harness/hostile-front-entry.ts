// A runtime's socket that turns hostile: `node hostile-front-entry.ts grpc|docker SOCKET RUNTIME`. Serves at SOCKET what listens at RUNTIME.
// A line "attack NAME" cuts the connections and attacks each new one, "rest" cuts them and serves again; each is answered by a line. The
// end of its input ends it.
import { type Socket, connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { dockerAttacks } from "./hostile-engine.ts";
import { type Attack, grpcAttacks } from "./hostile-http2.ts";

const [protocol, socket, runtime = ""] = process.argv.slice(2);
const attacks = protocol === "docker" ? dockerAttacks : grpcAttacks;
const honest: Attack = (near) => {
  const far = connect({ path: runtime, allowHalfOpen: true });
  for (const [one, other] of [
    [near, far],
    [far, near],
  ] as const) {
    one.on("error", () => other.destroy());
    one.once("close", () => other.destroy());
    one.pipe(other);
  }
};
let serve = honest;
const connections = new Set<Socket>();

const server = createServer({ allowHalfOpen: true }, (connection) => {
  connection.on("error", () => undefined);
  connections.add(connection);
  connection.once("close", () => connections.delete(connection));
  serve(connection);
});
server.listen(socket, () => console.log("listening"));
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const [word, name = ""] = line.split(/ (.*)/);
  const attack = word === "rest" ? honest : attacks[name];
  if (!attack) throw new Error(`there is no attack of the name ${name}`);
  serve = attack;
  for (const connection of connections) connection.destroy();
  console.log("done");
});
lines.on("close", () => process.exit(0));
