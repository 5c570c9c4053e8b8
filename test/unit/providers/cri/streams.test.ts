import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, type Server, connect, createServer } from "node:net";
import { test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { parseStreamUrl } from "../../../../providers/cri/streams.ts";
import { CodedError } from "../../../../src/lib/errors.ts";
import type { Address } from "../../../../src/seams/host.ts";
import { selfSigned } from "../../../fakes/certificate.ts";

const patience = (): AbortSignal => AbortSignal.timeout(5000);

/** A host that records dialled addresses and connects to `port` of our loopback. */
function hostOf(port: number) {
  const dialled: Address[] = [];
  const dial = async (to: Address) => {
    dialled.push(to);
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    return socket;
  };
  return { dialled, dial };
}

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

test("splits the URL into path, Host header and address; unspecified addresses mean loopback", async () => {
  const server = createServer((socket) => socket.end("hello"));
  const { dialled, dial } = hostOf(await listening(server));
  const cases = [
    ["http://127.0.0.1:4321/exec/TOKEN?x=1", "/exec/TOKEN?x=1", "127.0.0.1:4321", { host: "127.0.0.1", port: 4321 }],
    ["http://[::]:4321/attach/T", "/attach/T", "[::]:4321", { host: "::1", port: 4321 }],
    ["http://0.0.0.0:4321/attach/T", "/attach/T", "0.0.0.0:4321", { host: "127.0.0.1", port: 4321 }],
    ["http://localhost/portforward/T", "/portforward/T", "localhost", { host: "localhost", port: 80 }],
  ] as const;
  for (const [url, path, host, address] of cases) {
    const endpoint = parseStreamUrl(url, { dial });
    assert.deepEqual({ path: endpoint.path, host: endpoint.host }, { path, host });
    const connection = await endpoint.dial(patience());
    assert.equal(String((await once(connection, "data"))[0]), "hello");
    assert.deepEqual(dialled.at(-1), address);
    connection.destroy();
  }
  server.close();
});

test("connects to https endpoints with TLS and accepts any certificate", async () => {
  const server = createTlsServer(selfSigned("runtime"), (socket) => socket.end("secret"));
  const { dial } = hostOf(await listening(server));
  const connection = await parseStreamUrl("https://127.0.0.1:1/exec/T", { dial }).dial(patience());
  assert.equal(String((await once(connection, "data"))[0]), "secret");
  connection.destroy();
  server.close();
});

test("rejects on a failed or slow TLS handshake, and leaves no connection open", async () => {
  const closed: Promise<unknown>[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => {}).resume();
    closed.push(once(socket, "close"));
    if (closed.length === 1) socket.end("this is not TLS");
  });
  const { dial } = hostOf(await listening(server));
  const endpoint = parseStreamUrl("https://127.0.0.1:1/exec/T", { dial });
  await assert.rejects(endpoint.dial(patience()), { code: "unavailable" });
  const stop = new AbortController();
  const waiting = endpoint.dial(stop.signal);
  setTimeout(() => stop.abort(), 20);
  await assert.rejects(waiting, { code: "cancelled" });
  await Promise.all(closed);
  server.close();
});

test("rejects a URL that is not http", () => {
  const { dial } = hostOf(1);
  for (const url of ["", "/exec/T", "ftp://127.0.0.1/x"])
    assert.throws(() => parseStreamUrl(url, { dial }), CodedError);
});
