import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { Duplex } from "node:stream";
import { connect } from "node:tls";
import { type SpdyClient, spdyClient } from "../fakes/spdy-client.ts";
import { certificatesIn } from "./certificates.ts";
import type { Cluster } from "./cluster.ts";
import { networkArgv } from "./namespaces.ts";
import { start } from "./processes.ts";

/** A program that joins its fourth standard stream, which goes both ways, to a TCP connection. */
const join = `
const { connect, Socket } = require("node:net");
const mine = new Socket({ fd: 3 });
mine.pipe(connect(10250, process.argv[1])).pipe(mine);
`;

/** A connection to the kubelet API itself, past the API server, that has left HTTP for SPDY: with the API server's own certificate.
 *  Disposing breaks it off. */
export async function dialSpdy(
  { agentAddress, layout }: Cluster,
  path: string,
  protocol: string,
): Promise<{ readonly socket: Duplex } & Disposable> {
  const child = start(networkArgv(layout, [process.execPath, "-e", join, agentAddress]), {
    stdio: ["ignore", "ignore", "inherit", "pipe"],
  });
  const raw = child.stdio[3];
  if (!(raw instanceof Duplex)) throw new Error("a child without a fourth standard stream");
  const { cert, key } = certificatesIn(layout.pki).apiServerKubeletClient;
  const tls = connect({ socket: raw, cert: readFileSync(cert), key: readFileSync(key), rejectUnauthorized: false });
  for (const stream of [raw, tls]) stream.on("error", () => undefined);
  const asked = request({
    createConnection: () => tls,
    method: "POST",
    path,
    headers: { Host: agentAddress, Connection: "Upgrade", Upgrade: "SPDY/3.1", "X-Stream-Protocol-Version": protocol },
  });
  const refused = once(asked, "response").then(([response]) => {
    throw new Error(`${path} was answered ${(response as { statusCode: number }).statusCode}`);
  });
  refused.catch(() => undefined);
  asked.end();
  const [, socket, head] = (await Promise.race([once(asked, "upgrade"), refused])) as [unknown, Duplex, Buffer];
  if (head.length > 0) socket.unshift(head);
  return { socket, [Symbol.dispose]: () => void child.kill("SIGKILL") };
}

/** As above, for a client that reads. */
export async function dialSpdyClient(
  cluster: Cluster,
  path: string,
  protocol: string,
): Promise<{ readonly client: SpdyClient } & Disposable> {
  const dialed = await dialSpdy(cluster, path, protocol);
  return { client: spdyClient(dialed.socket), [Symbol.dispose]: dialed[Symbol.dispose] };
}
