import assert from "node:assert/strict";
import { type IncomingMessage, createServer, get } from "node:http";
import { text } from "node:stream/consumers";
import { connect } from "node:tls";
import { once } from "node:events";
import { test } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { guardResponses } from "../../../src/lib/guard-responses.ts";
import { createLogger, silentLog } from "../../../src/lib/log.ts";
import { createListening, serveHttps } from "../../../src/server/listen.ts";
import { createUnauthenticatedConnections } from "../../../src/server/unauthenticated-connections.ts";
import { createHealthzServer } from "../../../src/server/healthz.ts";
import { tlsOptions } from "../../../src/server/tls.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { ask, settable, start } from "./harness.ts";

const quiet = silentLog();

test("describes a port in use or an invalid address in one sentence with field, value and remedy", async () => {
  await using server = await start();
  const taken = new RegExp(
    `^port ${server.port} is taken on 127\\.0\\.0\\.1: stop the program that listens there .* or set another port$`,
  );
  await assert.rejects(start({ config: { port: server.port } }), { code: "already_exists", message: taken });
  await assert.rejects(start({ config: { address: "192.0.2.1" } }), {
    code: "invalid_argument",
    message: /^address "192\.0\.2\.1" is not an address of this machine/,
  });
});

test("continues after a failed accept and after a failed response", async () => {
  const server = createServer((_request, response) => {
    response.end("first");
    response.write("after the end");
  });
  const lines: string[] = [];
  const log = createLogger(0, { write: (line: string) => void lines.push(line) });
  const listening = createListening("test", log);
  const stop = new AbortController();
  const serving = serveHttps(
    {
      server: guardResponses(server),
      at: { address: "127.0.0.1", port: 0, addressField: "address", portField: "port" },
      unauthenticated: createUnauthenticatedConnections({ maxUnauthenticated: 10, maxAuthenticated: 10 }),
      clock: systemClock(),
      log,
      listening,
    },
    stop.signal,
  );
  await listening.ready();
  const port = listening.address()?.port;
  server.emit("error", Object.assign(new Error("accept EMFILE"), { code: "EMFILE" }));
  const answer = await new Promise<IncomingMessage>((resolve) =>
    get({ host: "127.0.0.1", port, agent: false }, resolve),
  );
  assert.equal(await text(answer), "first");
  assert.match(lines.join(), /cannot accept connection/);
  stop.abort();
  await serving;
});

test("translates TLS settings and refuses unknown values", async () => {
  const suites = [
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_AES_128_GCM_SHA256",
  ];
  assert.deepEqual(tlsOptions({ tlsMinVersion: "VersionTLS13", tlsCipherSuites: [] }), { minVersion: "TLSv1.3" });
  assert.equal(
    tlsOptions({ tlsMinVersion: "", tlsCipherSuites: suites }).ciphers,
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:AES256-SHA",
  );
  assert.throws(() => tlsOptions({ tlsMinVersion: "", tlsCipherSuites: ["TLS_NONE"] }), {
    code: "invalid_argument",
    message: /^tlsCipherSuites "TLS_NONE"/,
  });
  assert.throws(() => tlsOptions({ tlsMinVersion: "VersionTLS10", tlsCipherSuites: [] }), {
    code: "invalid_argument",
    message: /^tlsMinVersion "VersionTLS10"/,
  });
});

test("enforces the minimum TLS version", async () => {
  await using server = await start({ config: { tlsMinVersion: "VersionTLS13" } });
  assert.equal((await ask(server, "/healthz")).status, 200);
  await assert.rejects(ask(server, "/healthz", { maxVersion: "TLSv1.2" }));
});

test("serves a renewed certificate immediately", async () => {
  const [old, fresh] = [await makeSelfSigned("old", [], Date.now()), await makeSelfSigned("fresh", [], Date.now())];
  const certificate = settable(old);
  await using server = await start({ deps: { certificate } });
  assert.match(await shown(server.port), /DNS:old/);
  certificate.set(fresh);
  assert.match(await shown(server.port), /DNS:fresh/);
});

async function shown(port: number): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false });
  await once(socket, "secureConnect");
  const names = socket.getPeerX509Certificate()?.subjectAltName ?? "";
  socket.destroy();
  return names;
}

test("serves the local health endpoint", async () => {
  let unready: string | undefined = "not served yet: edge-1";
  const readiness = { unready: () => unready };
  const checked: string[] = [];
  const server = createHealthzServer({
    address: "127.0.0.1",
    port: 0,
    sharing: () => "shared",
    instance: "this",
    readiness,
    measures: { checked: (name, isHealthy) => void checked.push(`${name} ${isHealthy}`) },
    clock: systemClock(),
    log: quiet,
  });
  const stop = new AbortController();
  const done = server.run(stop.signal);
  await server.ready(stop.signal);
  const port = server.address()?.port ?? 0;
  const fetched = async (path: string) => {
    const [response] = (await once(get({ port, host: "127.0.0.1", path, agent: false }), "response")) as [
      IncomingMessage,
    ];
    return [response.statusCode, await text(response)];
  };
  assert.deepEqual(await fetched("/healthz"), [200, "ok"]);
  assert.deepEqual(checked, ["ping true"]);
  assert.deepEqual(await fetched("/readyz"), [
    500,
    "[+]ping ok\n[-]nodes failed: reason withheld\nhealthz check failed\n",
  ]);
  unready = undefined;
  for (const path of ["/livez", "/readyz", "/healthz/ping"]) assert.deepEqual(await fetched(path), [200, "ok"]);
  assert.equal((await fetched("/pods"))[0], 404);
  assert.deepEqual(await fetched("/healthz/%zz"), [400, "400 Bad Request\n"]);
  const taken = createHealthzServer({
    address: "127.0.0.1",
    port,
    sharing: () => "shared",
    instance: "this",
    readiness,
    clock: systemClock(),
    log: quiet,
  });
  await assert.rejects(taken.run(stop.signal), { code: "already_exists", message: /^healthzPort \d+ is taken/ });
  stop.abort();
  await done;
  assert.equal(server.address(), undefined);
});
