import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type ServerHttp2Stream, createServer as http2Server } from "node:http2";
import { type Server, type Socket, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { localHost } from "../../../providers/local/host.ts";
import { createCsiDriverClient } from "../../../src/csi/client.ts";
import { NodeUnpublishVolumeResponse } from "../../../src/gen/csi.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { grpcStatusOf } from "../../../src/lib/grpc-status.ts";
import { startTestDriver } from "../../harness/csi-driver.ts";

// Misbehaving drivers: every call ends with a status, and a later call is not affected.

/** Shortened timeout in the test, milliseconds. */
const hurry = 400;
const asked = { volumeId: "v", targetPath: "/nowhere" };

function rig(t: TestContext) {
  const rootDir = mkdtempSync(join(tmpdir(), "graftlet-csi-client-"));
  t.after(() => rmSync(rootDir, { recursive: true, force: true }));
  const real = systemClock();
  const limits: number[] = [];
  const within = (ms: number, signal?: AbortSignal) => {
    limits.push(ms);
    return real.within(ms / hurry, signal);
  };
  const clock = { ...real, within };
  const measured: string[] = [];
  const measures = { called: (_name: string, _method: string, status: string) => void measured.push(status) };
  const deps = { host: localHost({ clock }), clock, measures };
  const clientOf = (path: string) => createCsiDriverClient(deps, { name: "d", endpoint: path });
  return { rootDir, clientOf, measured, limits };
}

const late = {
  code: "deadline_exceeded",
  message: "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
};

/** Serves a socket whose connections are handled by the test. */
async function serve(t: TestContext, path: string, server: Server | ReturnType<typeof http2Server>): Promise<void> {
  server.listen(path);
  await once(server, "listening");
  t.after(() => void server.close());
}

async function serveRaw(t: TestContext, path: string, handle: (connection: Socket) => void): Promise<void> {
  const open = new Set<Socket>();
  const server = createServer((connection) => {
    open.add(connection);
    connection.on("error", () => undefined);
    handle(connection);
  });
  t.after(() => {
    for (const connection of open) connection.destroy();
  });
  await serve(t, path, server);
}

test("a call fails at the deadline if the driver answers late or not at all, and a later call succeeds", async (t) => {
  const { rootDir, clientOf, measured, limits } = rig(t);
  const driver = await startTestDriver({ name: "d", rootDir, disks: rootDir, run: async () => undefined });
  t.after(driver.stop);
  const client = clientOf(join(rootDir, "plugins/d/csi.sock"));
  for (const ms of [600, Number.POSITIVE_INFINITY]) {
    driver.delay("NodeUnpublishVolume", ms);
    await assert.rejects(client.unpublish(asked), late);
  }
  driver.delay("NodeUnpublishVolume", 0);
  await client.unpublish(asked);
  assert.deepEqual(measured, ["DeadlineExceeded", "DeadlineExceeded", "OK"]);
  assert.equal(driver.methods().length, 3);
  // A driver that needs 110 s must not time out.
  assert.deepEqual(limits, [120_000, 120_000, 120_000]);
});

test("a call fails at the deadline if the socket accepts connections but never answers", async (t) => {
  const { rootDir, clientOf } = rig(t);
  const path = join(rootDir, "mute.sock");
  await serveRaw(t, path, () => undefined);
  await assert.rejects(clientOf(path).unpublish(asked), late);
});

test("a call fails at once if the socket speaks another protocol or closes the connection", async (t) => {
  const { rootDir, clientOf, measured } = rig(t);
  const replies: readonly ((connection: Socket) => void)[] = [
    (connection) => void connection.write("HTTP/1.1 400 Bad Request\r\n\r\n"),
    (connection) => void connection.write(Buffer.alloc(4_096, 0xff)),
    (connection) => void connection.end(),
    (connection) => void connection.destroy(),
  ];
  for (const [index, reply] of replies.entries()) {
    const path = join(rootDir, `other-${index}.sock`);
    await serveRaw(t, path, reply);
    await assert.rejects(clientOf(path).unpublish(asked), {
      code: "unavailable",
      message: /^rpc error: code = Unavailable/,
    });
  }
  assert.deepEqual(measured, ["Unavailable", "Unavailable", "Unavailable", "Unavailable"]);
});

test("a call fails if the response is invalid, or is HTTP/2 but not gRPC", async (t) => {
  const { rootDir, clientOf, measured } = rig(t);
  const message = Buffer.from(NodeUnpublishVolumeResponse.encode(NodeUnpublishVolumeResponse.create()).finish());
  const framed = Buffer.concat([Buffer.alloc(5), message]);
  const bodies: Readonly<Record<string, { readonly status: number; readonly body: Buffer; readonly code: string }>> = {
    twice: { status: 200, body: Buffer.concat([framed, framed]), code: "Internal" },
    nothing: { status: 200, body: Buffer.alloc(0), code: "Internal" },
    cut: { status: 200, body: framed.subarray(0, 3), code: "Internal" },
    page: { status: 404, body: Buffer.from("<html>"), code: "" },
  };
  for (const [name, { status, body, code }] of Object.entries(bodies)) {
    const path = join(rootDir, `${name}.sock`);
    const server = http2Server();
    server.on("stream", (stream: ServerHttp2Stream) => {
      stream.on("error", () => undefined);
      stream.on("wantTrailers", () => stream.sendTrailers(status === 200 ? { "grpc-status": "0" } : {}));
      stream.respond({ ":status": status, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.end(body);
    });
    await serve(t, path, server);
    await assert.rejects(clientOf(path).unpublish(asked), (error: unknown) => {
      if (code !== "") assert.equal(grpcStatusOf(error), code, name);
      return true;
    });
  }
  assert.equal(measured.includes("OK"), false);
});
