import assert from "node:assert/strict";
import { test } from "node:test";
import { type RuntimeCondition, StatusResponse, VersionResponse } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createRuntimeHealth } from "../../../src/node/runtime-health.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

const ready = (type: string, status = true): RuntimeCondition => ({
  type,
  status,
  reason: status ? "" : "NotYet",
  message: status ? "" : "wait",
});

function start(options: { readonly down?: boolean } = {}) {
  const clock = fakeClock();
  let down = options.down ?? false;
  let handlers: readonly string[] = [];
  let conditions = [ready("RuntimeReady"), ready("NetworkReady")];
  let changes = 0;
  let heard: () => number | undefined = () => undefined;
  const asked: string[] = [];
  const answer = async <T>(verb: string, value: () => T): Promise<T> => {
    asked.push(verb);
    if (down) throw new CodedError("unavailable", "no socket");
    return value();
  };
  const runtime = {
    version: () =>
      answer("version", () => VersionResponse.fromPartial({ runtimeName: "containerd", runtimeVersion: "1.6.20" })),
    status: () =>
      answer("status", () =>
        StatusResponse.fromPartial({ status: { conditions }, runtimeHandlers: handlers.map((name) => ({ name })) }),
      ),
    lastAliveAt: () => heard(),
  };
  const health = createRuntimeHealth({ runtime, clock, log: silent, onChange: () => void (changes += 1) });
  const stop = new AbortController();
  const running = health.run(stop.signal);
  return {
    clock,
    health,
    changes: () => changes,
    asked: () => asked,
    setHeard: (value: () => number | undefined) => void (heard = value),
    setDown: (value: boolean) => void (down = value),
    setHandlers: (...now: string[]) => void (handlers = now),
    setConditions: (...now: RuntimeCondition[]) => void (conditions = now),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(10_000);
      await running;
    },
  };
}

test("sorts runtime handlers by name", async () => {
  await using t = start();
  assert.equal(t.health.handlers(), undefined);
  t.setHandlers("runsc", "", "kata");
  await t.clock.advance(0);
  assert.deepEqual(
    t.health.handlers()?.map(({ name }) => name),
    ["", "kata", "runsc"],
  );
});

test("reports no problems for a ready runtime", async () => {
  await using t = start();
  await t.clock.advance(0);
  assert.deepEqual([t.health.problems(), t.health.isAnswering()], [[], true]);
  assert.equal(t.health.version()?.runtimeVersion, "1.6.20");
  assert.equal(t.changes(), 1);
});

test("reports a runtime that is missing at the start as down, until it responds", async () => {
  await using t = start({ down: true });
  await t.clock.advance(0);
  assert.deepEqual(t.health.problems(), ["container runtime is down: no socket"]);
  t.setDown(false);
  await t.clock.advance(1_000);
  assert.deepEqual(t.health.problems(), []);
});

test("tolerates silence for half a minute", async () => {
  await using t = start();
  await t.clock.advance(0);
  t.setDown(true);
  await t.clock.advance(29_000);
  assert.deepEqual([t.health.problems(), t.health.isAnswering()], [[], false]);
  await t.clock.advance(3_000);
  assert.deepEqual(t.health.problems(), ["container runtime is down: no socket"]);
  assert.equal(t.health.problems(["PLEG is not healthy"]).at(-1), "PLEG is not healthy");
});

test("reports the runtime's own conditions for itself and its network", async () => {
  await using t = start();
  await t.clock.advance(0);
  t.setConditions(ready("RuntimeReady"), ready("NetworkReady", false));
  await t.clock.advance(5_000);
  const network = "container runtime network not ready: NetworkReady=false reason:NotYet message:wait";
  assert.deepEqual(t.health.problems(), [network]);
  assert.equal(t.health.networkError(), network);
  assert.deepEqual(t.health.problems(["PLEG is not healthy"]), ["PLEG is not healthy", network]);
  t.setConditions(ready("RuntimeReady", false), ready("NetworkReady"));
  await t.clock.advance(5_000);
  assert.deepEqual(t.health.problems(), ["container runtime not ready: RuntimeReady=false reason:NotYet message:wait"]);
  assert.equal(t.health.networkError(), undefined);
});

test("does not poll a runtime with live events, and reports it down when it falls silent", async () => {
  await using t = start();
  t.setHeard(() => t.clock.monotonic());
  await t.clock.advance(0);
  assert.deepEqual(t.asked(), ["version", "status"]);
  await t.clock.advance(120_000);
  assert.deepEqual(t.asked(), ["version", "status"]);
  const silentSince = t.clock.monotonic();
  t.setHeard(() => silentSince);
  t.setDown(true);
  await t.clock.advance(34_000);
  assert.deepEqual([t.asked().length, t.health.problems()], [2, []]);
  await t.clock.advance(12_000);
  assert.deepEqual(t.health.problems(), ["container runtime is down: no socket"]);
  t.setDown(false);
  await t.clock.advance(1_000);
  assert.deepEqual(t.health.problems(), []);
});

test("polls a runtime immediately when its events stop", async () => {
  await using t = start();
  t.setHeard(() => t.clock.monotonic());
  await t.clock.advance(10_000);
  t.setHeard(() => undefined);
  t.setConditions(ready("RuntimeReady"), ready("NetworkReady", false));
  await t.clock.advance(5_000);
  assert.match(t.health.networkError() ?? "", /NetworkReady=false/);
  // A problem may be fixed without an event.
  t.setHeard(() => t.clock.monotonic());
  t.setConditions(ready("RuntimeReady"), ready("NetworkReady"));
  await t.clock.advance(5_000);
  assert.deepEqual(t.health.problems(), []);
});

test("reads the version once a minute, and when the runtime is back", async () => {
  await using t = start();
  await t.clock.advance(59_000);
  assert.equal(t.asked().filter((verb) => verb === "version").length, 1);
  await t.clock.advance(5_000);
  assert.equal(t.asked().filter((verb) => verb === "version").length, 2);
  t.setDown(true);
  await t.clock.advance(5_000);
  t.setDown(false);
  await t.clock.advance(2_000);
  assert.deepEqual(t.asked().slice(-2), ["version", "status"]);
});
