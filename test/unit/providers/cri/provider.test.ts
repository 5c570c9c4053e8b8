import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createMachineAccess } from "../../../../providers/index.ts";
import { systemClock } from "../../../../src/lib/clock.ts";
import type { Logger } from "../../../../src/lib/log.ts";
import type { ProviderOptions } from "../../../../src/seams/provider.ts";

const silent: Logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const options: ProviderOptions = {
  config: { sharing: "shared" },
  containerRuntimeEndpoint: `unix://${join(tmpdir(), "graftlet-no-such.sock")}`,
  imageServiceEndpoint: "",
  requestTimeoutMs: 1000,
  containerLogs: { maxSizeBytes: 1, maxFiles: 2 },
  nodeName: "n",
  clock: systemClock(),
  log: silent,
};

test("the cri provider creates a target without waiting for its runtime", async () => {
  const target = await createMachineAccess().providers.cri?.(options);
  assert.ok(target);
  assert.equal(target.sharing, "shared");
  await assert.rejects(target.runtime.version(AbortSignal.timeout(5000)), { code: "unavailable" });
  assert.equal((await target.host.fs.stat("/")).kind, "directory");
  await target[Symbol.asyncDispose]();
});

test("rejects an unknown field", async () => {
  await assert.rejects(async () => createMachineAccess().providers.cri?.({ ...options, config: { socket: "x" } }), {
    code: "invalid_argument",
    message: /providerConfig\.socket is not a field/,
  });
});
