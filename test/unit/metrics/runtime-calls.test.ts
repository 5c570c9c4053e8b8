import assert from "node:assert/strict";
import { test } from "node:test";
import { PodSandboxConfig, RunPodSandboxRequest } from "../../../src/gen/cri.ts";
import { measuredRuntime } from "../../../src/metrics/runtime-calls.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";

const { signal } = new AbortController();

test("counts and times every call under the kubelet's operation name, and does not add missing optional methods", async () => {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock, events: false });
  const said: string[] = [];
  const measured = measuredRuntime(
    runtime,
    {
      called: (operation, ms, failed) => void said.push(`${operation} ${ms}${failed ? " failed" : ""}`),
      sandboxRun: (handler, ms, failed) => void said.push(`sandbox ${handler} ${ms}${failed ? " failed" : ""}`),
    },
    clock,
  );
  const release = runtime.hold("status");
  const status = measured.status(signal);
  await clock.advance(40);
  release();
  assert.ok((await status).status);
  await assert.rejects(measured.containerStatus("none", signal), { code: "not_found" });
  const config = PodSandboxConfig.fromPartial({ metadata: { name: "p", namespace: "d", uid: "u", attempt: 0 } });
  await measured.runPodSandbox(RunPodSandboxRequest.fromPartial({ config, runtimeHandler: "kata" }), signal);
  runtime.failNext("runPodSandbox", new Error("no"));
  await assert.rejects(measured.runPodSandbox(RunPodSandboxRequest.fromPartial({ config }), signal), /no/);
  assert.deepEqual(said, [
    "status 40",
    "container_status 0 failed",
    "run_podsandbox 0",
    "sandbox kata 0",
    "run_podsandbox 0 failed",
    "sandbox  0 failed",
  ]);
  assert.deepEqual(["events" in measured, "logs" in measured, "ownedResources" in measured], [false, false, false]);
  assert.equal((await measured.listPodSandbox(undefined, signal)).length, 1);
  await measured[Symbol.asyncDispose]();
});

test("wraps a class instance with its inherited and private members", async () => {
  class OddRuntime {
    readonly #answer = "not here";
    constructor() {
      Object.assign(this, fakeRuntime({ clock: fakeClock(), events: false }));
    }
    async unsupportedReason() {
      return this.#answer;
    }
    async *events() {
      yield { kind: "listening" } as const;
    }
    async logRoots() {
      return [this.#answer];
    }
  }
  const measured = measuredRuntime(new OddRuntime() as OddRuntime & Runtime, unmeasured.runtime, fakeClock());
  assert.equal(await measured.unsupportedReason?.("privileged", signal), "not here");
  assert.deepEqual(await measured.logRoots?.(signal), ["not here"]);
  for await (const event of measured.events?.(signal) ?? []) assert.deepEqual(event, { kind: "listening" });
  assert.ok("events" in measured && !("logs" in measured));
});
