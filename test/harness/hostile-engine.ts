import { createServer, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Attack } from "./hostile-http2.ts";

// Docker Engines that lie. Each answers what is needed to talk to it, and attacks with the answer to anything else.

const version = JSON.stringify({
  ApiVersion: "1.44",
  MinAPIVersion: "1.24",
  Version: "28.0.0",
  Arch: "amd64",
  Os: "linux",
});

function engine(attack: (response: ServerResponse) => void): Attack {
  const server = createServer((request, response) => {
    response.on("error", () => undefined);
    if (request.url?.startsWith("/version")) return void response.end(version);
    if (request.url?.includes("/info")) return void response.end('{"SystemTime":"2026-01-01T00:00:00.0Z","Images":0}');
    attack(response);
  });
  return (connection) => void server.emit("connection", connection);
}

/** Attacks below HTTP: the answer to the first request but /version and /info is what `attack` writes. */
function raw(attack: (connection: Socket) => void): Attack {
  return (connection) => {
    connection.on("data", (request) => {
      const text = request.toString("latin1");
      const answer = (body: string) =>
        connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      if (text.startsWith("GET /version")) answer(version);
      else if (text.includes("/info")) answer('{"SystemTime":"2026-01-01T00:00:00.0Z"}');
      else attack(connection);
    });
  };
}

function forever(to: Socket | ServerResponse, make: () => Buffer | string): void {
  const write = () => {
    while (!to.destroyed && to.write(make()));
  };
  to.on("drain", write);
  write();
}

const head = "HTTP/1.1 200 OK\r\n";
const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`;
const tinyChunks = "1\r\n \r\n".repeat(10_000);
const objects = "{},".repeat(20_000);
const full = (text: string) => text.repeat(Math.floor((8 * 1024 * 1024 - 10) / text.length));

export const dockerAttacks: Readonly<Record<string, Attack>> = {
  none: engine((response) => response.end("[]")),
  "empty objects": engine((response) => response.end(`[${full("{},")}{}]`)),
  "deep lists": engine((response) => response.end(full("["))),
  "an endless response": engine((response) => forever(response, () => objects)),
  "endless whitespace": raw((connection) => {
    connection.write(chunked);
    forever(connection, () => tinyChunks);
  }),
  "slow bytes": engine((response) => {
    const timer = setInterval(() => response.write(" "), 50);
    response.on("close", () => clearInterval(timer));
  }),
  "a response shorter than announced": raw((connection) => {
    connection.end(`${head}Content-Length: 1000000\r\n\r\n[`);
  }),
  "a negative length": raw((connection) => void connection.write(`${head}Content-Length: -5\r\n\r\n[]`)),
  "endless header fields": raw((connection) => {
    connection.write(head);
    forever(connection, () => "x: y\r\n".repeat(10_000));
  }),
  "an endless header line": raw((connection) => {
    connection.write(`${head}x: `);
    forever(connection, () => "y".repeat(65_536));
  }),
  "endless informational responses": raw((connection) =>
    forever(connection, () => "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2_000)),
  ),
  "endless trailers": raw((connection) => {
    connection.write(`${chunked}2\r\n[]\r\n0\r\n`);
    forever(connection, () => "x: y\r\n".repeat(10_000));
  }),
  "unsolicited responses": raw((connection) =>
    forever(connection, () => `${head}Content-Length: 2\r\n\r\n[]`.repeat(1_000)),
  ),
  "a chunk of 4 GiB": raw((connection) => {
    connection.write(`${chunked}ffffffff\r\n`);
    forever(connection, () => " ".repeat(65_536));
  }),
  "an endless error": engine((response) => {
    response.writeHead(500);
    forever(response, () => "x".repeat(65_536));
  }),
  "endless events": engine((response) => forever(response, () => '{"Type":"image"}\n'.repeat(4_000))),
  "an endless event": engine((response) => forever(response, () => "x".repeat(65_536))),
  silence: raw(() => undefined),
  "an immediate close": raw((connection) => connection.destroy()),
};
