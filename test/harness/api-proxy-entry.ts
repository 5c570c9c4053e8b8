// Stands between a node and its API server, inside the cluster: ends TLS, and asks the API server as the node. What it is to do
// wrong comes as a line of JSON on standard input; it answers each with a line. See api-proxy.ts.
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Http2ServerRequest, type Http2ServerResponse, createSecureServer } from "node:http2";
import { Agent, request } from "node:https";
import { type AddressInfo, type Server, type Socket, connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { buffer } from "node:stream/consumers";
import type { Fault, ProxyOrder, Write } from "./api-proxy.ts";

const [upstream = "", pki = "", own = "", node = ""] = process.argv.slice(2);
const server = new URL(upstream);
const file = (name: string) => readFileSync(`${pki}/${name}`);
const agent = new Agent({
  keepAlive: true,
  ca: file("ca.crt"),
  cert: file(`${node}.crt`),
  key: file(`${node}.key`),
});
let fault: Fault | undefined;
let writes: Write[] = [];

const tls = createSecureServer({ cert: file(`${own}.crt`), key: file(`${own}.key`), allowHTTP1: true });
tls.on("request", (asked: Http2ServerRequest, answer: Http2ServerResponse) => {
  void serve(asked, answer).catch(() => answer.stream?.destroy() ?? answer.destroy());
});
// What fails in TLS fails for its client.
tls.on("tlsClientError", () => undefined);

async function serve(asked: Http2ServerRequest, answer: Http2ServerResponse): Promise<void> {
  answer.on("error", () => undefined);
  const isWrite = asked.method !== "GET";
  if (isWrite) writes.push({ at: Date.now(), method: asked.method, path: asked.url.split("?", 1)[0] ?? "" });
  const now = fault && fits(fault, asked) ? fault : undefined;
  const body = await buffer(asked);
  if (now?.status !== undefined) return refuse(answer, now.status, now.retryAfter);
  const from = await ask(asked, body);
  answer.writeHead(from.statusCode ?? 502, headersFor(from, now?.half === true));
  if (now?.half) return void answer.end(half(await begin(from)));
  // A watch has begun before anything happens. Over HTTP/2 too, though the types do not know it.
  (answer as unknown as ServerResponse).flushHeaders();
  from.on("data", (chunk: Buffer) => void (answer.write(chunk) || from.pause()));
  answer.on("drain", () => from.resume());
  answer.on("close", () => from.destroy());
  from.on("end", () => answer.end());
  from.on("error", () => answer.destroy());
}

function fits({ only }: Fault, { method, url }: Http2ServerRequest): boolean {
  if (only === "reads") return method === "GET";
  if (only === "pods") return method === "GET" && url.startsWith("/api/v1/pods");
  return true;
}

function refuse(answer: Http2ServerResponse, status: number, retryAfter: number | undefined): void {
  answer.writeHead(status, {
    "content-type": "application/json",
    ...(retryAfter !== undefined && { "retry-after": String(retryAfter) }),
  });
  const reason = status === 410 ? "Expired" : status === 429 ? "TooManyRequests" : "InternalError";
  answer.end(
    JSON.stringify({ kind: "Status", apiVersion: "v1", status: "Failure", reason, code: status, message: "chaos" }),
  );
}

function ask({ method, url, headers }: Http2ServerRequest, body: Buffer): Promise<IncomingMessage> {
  const kept = Object.entries(headers).filter(([name]) => !name.startsWith(":") && !hop.has(name));
  return new Promise((resolve, reject) => {
    const onward = request(
      {
        host: server.hostname,
        port: server.port,
        method,
        path: url,
        agent,
        headers: { ...Object.fromEntries(kept), "content-length": body.length },
      },
      resolve,
    );
    onward.once("error", reject);
    onward.end(body);
  });
}

const hop = new Set(["connection", "keep-alive", "transfer-encoding", "host", "content-length", "http2-settings"]);

/** A body that is cut short has no length of its own any more. */
function headersFor({ headers }: IncomingMessage, cut: boolean): Record<string, string | string[]> {
  const kept = Object.entries(headers).filter(
    ([name, value]) => value !== undefined && !hop.has(name) && !(cut && name === "content-length"),
  );
  return Object.fromEntries(kept) as Record<string, string | string[]>;
}

/** The whole body, or of one that goes on what comes first. */
async function begin(from: IncomingMessage): Promise<Buffer> {
  if (from.headers["transfer-encoding"] !== "chunked") return buffer(from);
  for await (const chunk of from as AsyncIterable<Buffer>) return chunk;
  return Buffer.alloc(0);
}

function half(body: Buffer): Buffer {
  return body.subarray(0, Math.floor(body.length / 2));
}

/** Raw connections lead to the TLS server through this process itself, so that they can be made to lead nowhere. */
const pairs = new Set<readonly [Socket, Socket]>();
let tlsPort = 0;
const front = createServer((near) => {
  const far = connect(tlsPort, "127.0.0.1");
  const pair = [near, far] as const;
  pairs.add(pair);
  for (const [one, other] of [pair, [far, near] as const]) {
    one.on("error", () => other.destroy());
    one.once("close", () => void (pairs.delete(pair), other.destroy()));
    one.pipe(other);
  }
});

/** Every connection that there is swallows what comes, and says nothing any more. */
function swallow(): number {
  for (const pair of pairs) for (const socket of pair) socket.unpipe().resume();
  return pairs.size;
}

async function listen(on: Pick<Server, "listen" | "address">, port = 0): Promise<number> {
  await new Promise<void>((resolve) => void on.listen(port, "127.0.0.1", resolve));
  return (on.address() as AddressInfo).port;
}

tlsPort = await listen(tls);
const port = await listen(front);
process.stdout.write(`${JSON.stringify({ port })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as ProxyOrder;
  let said: unknown = {};
  if (order.do === "fault") fault = order.fault;
  else if (order.do === "swallow") said = { connections: swallow() };
  else if (order.do === "close") {
    front.close();
    for (const [near] of pairs) near.destroy();
  } else if (order.do === "open") await listen(front, port);
  else [said, writes] = [{ writes }, []];
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
process.exit(0);
