import assert from "node:assert/strict";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import { probeGrpc } from "../../../src/probes/grpc.ts";
import { probeTcp } from "../../../src/probes/attempt.ts";
import { freePort, listen } from "../../harness/ports.ts";
import { loopbackHost } from "./loopback.ts";

const host = "10.0.0.7";
const patience = (): AbortSignal => AbortSignal.timeout(5000);

test("tcp: a connection is a success; a refused one fails with Go's wording", async (t) => {
  const server = createServer((socket) => socket.on("error", () => {}));
  t.after(() => server.close());
  const port = await listen(server);
  assert.deepEqual(await probeTcp(loopbackHost(), host, port, patience()), { kind: "success", output: "" });
  const closed = await freePort();
  assert.deepEqual(await probeTcp(loopbackHost(), host, closed, patience()), {
    kind: "failure",
    output: `dial tcp ${host}:${closed}: connect: connection refused`,
  });
  assert.deepEqual(await probeTcp(loopbackHost(), "fd00::1", closed, patience()), {
    kind: "failure",
    output: `dial tcp [fd00::1]:${closed}: connect: connection refused`,
  });
});

interface Call {
  readonly request: Buffer;
  readonly metadata: { get(name: string): unknown[] };
}
type Reply = (error: { code: number; details: string } | null, answer?: Buffer) => void;

/** A gRPC server with only the health check, with raw messages. */
async function healthServer(t: TestContext, check: (call: Call, reply: Reply) => void): Promise<number> {
  const server = new Server();
  const bytes = {
    requestSerialize: (it: Buffer) => it,
    requestDeserialize: (it: Buffer) => it,
    responseSerialize: (it: Buffer) => it,
    responseDeserialize: (it: Buffer) => it,
  };
  server.addService(
    { check: { path: "/grpc.health.v1.Health/Check", requestStream: false, responseStream: false, ...bytes } },
    { check },
  );
  t.after(() => server.forceShutdown());
  return new Promise((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) =>
      error ? reject(error) : resolve(port),
    ),
  );
}

const ask = (port: number, more: { service?: string; timeoutSeconds?: number; signal?: AbortSignal } = {}) =>
  probeGrpc(loopbackHost(), { host, port, service: "", timeoutSeconds: 1, signal: patience(), ...more });

test("grpc: SERVING is a success; the request names the service and the user agent", async (t) => {
  const calls: Call[] = [];
  const port = await healthServer(t, (call, reply) => {
    calls.push(call);
    reply(null, Buffer.from([8, 1]));
  });
  assert.deepEqual(await ask(port, { service: "db" }), { kind: "success", output: "service healthy" });
  assert.deepEqual(calls[0]?.request, Buffer.from([10, 2, 100, 98]));
  assert.deepEqual(calls[0].metadata.get("user-agent"), ["kube-probe/1.36"]);
});

test("grpc: any status other than SERVING fails", async (t) => {
  let word = 0;
  const port = await healthServer(t, (_call, reply) =>
    reply(null, word === 0 ? Buffer.alloc(0) : Buffer.from([8, word])),
  );
  for (const [number, name] of [
    [0, "UNKNOWN"],
    [2, "NOT_SERVING"],
    [3, "SERVICE_UNKNOWN"],
  ] as const) {
    word = number;
    assert.deepEqual(await ask(port), { kind: "failure", output: `service unhealthy (responded with "${name}")` });
  }
});

test("grpc: reports the server's error codes", async (t) => {
  let code: number = status.NOT_FOUND;
  const port = await healthServer(t, (_call, reply) => reply({ code, details: "unknown service: ä" }));
  assert.deepEqual(await ask(port), {
    kind: "failure",
    output: "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service: ä",
  });
  code = status.DEADLINE_EXCEEDED;
  assert.deepEqual(await ask(port), { kind: "failure", output: "timeout: health rpc did not complete within 1s" });
  const bare = new Server();
  t.after(() => bare.forceShutdown());
  const other = await new Promise<number>((resolve, reject) =>
    bare.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  const { output } = (await ask(other)) as { output: string };
  assert.match(
    output,
    /^error: this server does not implement the grpc health protocol \(grpc\.health\.v1\.Health\): /,
  );
});

test("grpc: fails if refused, or without a response before or after the connection is established", async (t) => {
  const closed = await freePort();
  const refused = (await ask(closed)) as { kind: string; output: string };
  assert.equal(refused.kind, "failure");
  assert.match(
    refused.output,
    new RegExp(`^error: failed to connect service at "${host}:${closed}": .*connection refused`),
  );

  const mute = createServer((socket) => socket.on("error", () => {}).resume());
  t.after(() => mute.close());
  const port = await listen(mute);
  assert.deepEqual(await ask(port, { signal: AbortSignal.timeout(50) }), {
    kind: "failure",
    output: `timeout: failed to connect service "${host}:${port}" within 1s: context deadline exceeded`,
  });

  const slow = await healthServer(t, () => {});
  assert.deepEqual(await ask(slow, { timeoutSeconds: 90, signal: AbortSignal.timeout(100) }), {
    kind: "failure",
    output: "timeout: health rpc did not complete within 1m30s",
  });
});

test("grpc: a server that does not speak gRPC fails", async (t) => {
  const web = createServer((socket) => void socket.on("error", () => {}).end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  t.after(() => web.close());
  const port = await listen(web);
  assert.equal((web.address() as AddressInfo).port, port);
  assert.equal((await ask(port)).kind, "failure");
});
