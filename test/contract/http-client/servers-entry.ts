// Serves the answers that come as JSON on standard input, each at a port of its own, and prints the ports. Ends with its input.
import { json } from "node:stream/consumers";
import { type RawServer, startServer } from "./servers.ts";

const kinds = (await json(process.stdin)) as RawServer[];
const ports: number[] = [];
for (const kind of kinds) ports.push((await startServer(kind)).port);
console.log(JSON.stringify(ports));
