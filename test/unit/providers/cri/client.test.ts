import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { type Metadata, status } from "@grpc/grpc-js";
import { createGrpcChannel } from "../../../../providers/cri/client.ts";
import { localHost } from "../../../../providers/local/host.ts";
import {
  ExecSyncRequest,
  ExecSyncResponse,
  RuntimeServiceService as runtimeService,
  VersionRequest,
  VersionResponse,
} from "../../../../src/gen/cri.ts";
import { systemClock } from "../../../../src/lib/clock.ts";
import { CodedError } from "../../../../src/lib/errors.ts";
import { RuntimeError } from "../../../../src/seams/runtime.ts";
import { never } from "../../../fakes/signals.ts";
import { type SocketRig, socketRig } from "./server.ts";

const request = VersionRequest.fromPartial({});
const exec = ExecSyncRequest.fromPartial({});

const { version, execSync } = runtimeService;

/** Serves `version` on a rig's socket. */
const serveVersion = (rig: SocketRig) =>
  rig.serve((server) =>
    server.addService(
      { version },
      {
        version: (_call: unknown, reply: (error: null, value: VersionResponse) => void) =>
          reply(null, VersionResponse.fromPartial({ version: "v1" })),
      },
    ),
  );

test("the first call after an outage succeeds, however long the outage lasted", async () => {
  await using rig = socketRig();
  for (let tries = 0; tries < 5; tries += 1)
    await assert.rejects(rig.channel.call(version, request, never), { code: "unavailable" });
  await serveVersion(rig);
  assert.equal((await rig.channel.call(version, request, never)).version, "v1");
});

test("sends trace headers with each call", async () => {
  await using rig = socketRig();
  const seen: unknown[] = [];
  await rig.serve((server) =>
    server.addService(
      { version },
      {
        version(call: { metadata: Metadata }, reply: (error: null, value: VersionResponse) => void) {
          seen.push(call.metadata.get("traceparent")[0]);
          reply(null, VersionResponse.fromPartial({}));
        },
      },
    ),
  );
  const traces = ["one", "two"];
  const callHeaders = () => ({ traceparent: traces.shift() ?? "none" });
  const clock = systemClock();
  const host = localHost({ clock });
  const channel = createGrpcChannel({ host, path: rig.path, requestTimeoutMs: 5000, callHeaders, clock });
  await channel.call(version, request, never);
  await channel.call(version, request, never);
  channel.close();
  assert.deepEqual(seen, ["one", "two"]);
});

test("a missing socket is unavailable at once, and used as soon as it exists", async () => {
  await using rig = socketRig();
  await assert.rejects(rig.channel.call(version, request, never), { code: "unavailable" });
  await assert.rejects(rig.channel.call(version, request, never), { code: "unavailable" });
  await serveVersion(rig);
  const started = process.hrtime.bigint();
  let answer: VersionResponse | undefined;
  while (!answer)
    answer = await rig.channel
      .call(version, request, never)
      .catch(() => new Promise<undefined>((resolve) => setImmediate(resolve, undefined)));
  assert.equal(answer.version, "v1");
  assert.ok(process.hrtime.bigint() - started < 2_000_000_000n, "within two seconds");
});

test("maps the server's status to our code and keeps its message", async () => {
  await using rig = socketRig();
  const failures = [
    [status.NOT_FOUND, "not_found"],
    [status.ALREADY_EXISTS, "already_exists"],
    [status.UNKNOWN, "unknown"],
    [status.INTERNAL, "internal"],
    [status.DATA_LOSS, "unknown"],
    [status.INVALID_ARGUMENT, "invalid_argument"],
    [status.UNAUTHENTICATED, "unauthenticated"],
    [status.PERMISSION_DENIED, "permission_denied"],
    [status.RESOURCE_EXHAUSTED, "resource_exhausted"],
    [status.FAILED_PRECONDITION, "failed_precondition"],
    [status.DEADLINE_EXCEEDED, "deadline_exceeded"],
    [status.UNIMPLEMENTED, "unimplemented"],
    [status.ABORTED, "conflict"],
    [status.CANCELLED, "unavailable"],
  ] as const;
  let next = 0;
  await rig.serve((server) =>
    server.addService(
      { version },
      {
        version: (_call: unknown, reply: (error: object) => void) =>
          reply({ code: failures[next]?.[0], details: `failed to do "x": no ${next}` }),
      },
    ),
  );
  for (const [index, [, code]] of failures.entries()) {
    next = index;
    await assert.rejects(rig.channel.call(version, request, never), {
      code,
      message: `failed to do "x": no ${index}`,
    });
  }
});

test("separates a reason defined by CRI from the server's message", async () => {
  await using rig = socketRig();
  const words = [
    "RegistryUnavailable: down",
    "SignatureValidationFailed",
    "ImageVolumeMountFailed: no path",
    "no disk",
  ];
  let next = 0;
  await rig.serve((server) =>
    server.addService(
      { version },
      {
        version: (_call: unknown, reply: (error: object) => void) =>
          reply({ code: status.UNKNOWN, details: words[next] }),
      },
    ),
  );
  const reasons: unknown[] = [];
  for (next = 0; next < words.length; next++) {
    const error = await rig.channel.call(version, request, never).catch((thrown: unknown) => thrown);
    assert.ok(error instanceof CodedError);
    assert.equal(error.message, words[next]);
    reasons.push(error instanceof RuntimeError ? error.reason : undefined);
  }
  assert.deepEqual(reasons, ["RegistryUnavailable", "SignatureValidationFailed", "ImageVolumeMountFailed", undefined]);
});

test("an operation unknown to the server is unimplemented", async () => {
  await using rig = socketRig();
  await rig.serve(() => {});
  await assert.rejects(rig.channel.call(version, request, never), { code: "unimplemented" });
});

test("a call ends at the default deadline, at its own, or when its signal aborts, and may have no deadline", async () => {
  await using rig = socketRig(50);
  const ended: Promise<unknown>[] = [];
  let arrived = Promise.withResolvers<void>();
  await rig.serve((server) =>
    server.addService(
      { version, execSync },
      {
        version(call: NodeJS.EventEmitter) {
          ended.push(once(call, "cancelled"));
          arrived.resolve();
        },
        execSync: (_call: unknown, reply: (error: null, value: ExecSyncResponse) => void) =>
          void setTimeout(() => reply(null, ExecSyncResponse.fromPartial({ exitCode: 4 })), 200),
      },
    ),
  );
  await assert.rejects(rig.channel.call(version, request, never), { code: "deadline_exceeded" });
  await assert.rejects(rig.channel.call(execSync, exec, never), { code: "deadline_exceeded" });
  arrived = Promise.withResolvers();
  assert.equal((await rig.channel.call(execSync, exec, never, "none")).exitCode, 4);
  assert.equal((await rig.channel.call(execSync, exec, never, 5000)).exitCode, 4);
  const stop = new AbortController();
  const call = rig.channel.call(version, request, stop.signal, "none");
  await arrived.promise;
  stop.abort();
  await assert.rejects(call, { code: "cancelled" });
  // The server is notified of the end of each call that reached it; on a busy machine the first may not have.
  await Promise.all(ended);
});

test("accepts messages up to 16 MiB; larger ones are resource_exhausted", async () => {
  await using rig = socketRig();
  let bytes = 15 * 1024 * 1024;
  await rig.serve((server) =>
    server.addService(
      { execSync },
      {
        execSync: (_call: unknown, reply: (error: null, value: ExecSyncResponse) => void) =>
          reply(null, ExecSyncResponse.fromPartial({ stdout: Buffer.alloc(bytes) })),
      },
    ),
  );
  assert.equal((await rig.channel.call(execSync, exec, never)).stdout.length, bytes);
  bytes = 17 * 1024 * 1024;
  await assert.rejects(rig.channel.call(execSync, exec, never), { code: "resource_exhausted" });
});
