import assert from "node:assert/strict";
import { test } from "node:test";
import { createNodeState, wireActors, wiring } from "../../../src/kubelet/wiring.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createSignals } from "../../../src/state/signals.ts";
import { fakeClock } from "../../fakes/clock.ts";

interface Wires {
  readonly reads?: readonly string[];
  readonly writes?: readonly string[];
  readonly sends?: readonly string[];
  readonly subscribes?: readonly string[];
}
const actors: readonly (readonly [string, Wires])[] = Object.entries(wiring);
const using = (kind: keyof Wires, name: string) =>
  actors.filter(([, wires]) => wires[kind]?.includes(name)).map(([actor]) => actor);
const { state } = createNodeState(fakeClock(), ["api"]);

test("each column of the state has exactly one writer", () => {
  for (const part of Object.keys(state)) {
    assert.equal(using("writes", part).length, 1, `${part} is written by ${using("writes", part).join()}`);
    assert.ok([...using("reads", part), ...using("writes", part)].length > 0, part);
  }
});

test("each signal has at least one sender and one subscriber", () => {
  for (const signal of Object.keys(createSignals()))
    assert.ok(using("sends", signal).length > 0 && using("subscribes", signal).length > 0, signal);
});

test("gives an actor the clock, the log, and only the state and signals listed for it in the wiring", () => {
  const partsOf = wireActors(state, createSignals(), { clock: fakeClock(), log: silentLog() });
  const handed = partsOf("statusManager");
  assert.deepEqual(Object.keys(handed).sort(), ["apiPods", "clock", "log", "signals", "status", "worker"]);
  assert.equal("set" in handed.apiPods, false);
  assert.equal("set" in handed.status, true);
  assert.deepEqual(Object.keys(partsOf("pleg").signals), ["wakeWorker", "retryFailedPods"]);
});

test("refuses to hand out a column's writer a second time", () => {
  const partsOf = wireActors(state, createSignals(), { clock: fakeClock(), log: silentLog() });
  partsOf("pleg");
  assert.throws(() => partsOf("pleg"), { message: "pleg: column podCache already has a writer" });
  partsOf("kubeletServer");
  partsOf("kubeletServer");
});
