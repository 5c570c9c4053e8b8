import assert from "node:assert/strict";
import { test } from "node:test";
import { coalesce } from "../../../src/lib/coalesce.ts";

function gated() {
  const gates: PromiseWithResolvers<void>[] = [];
  const call = coalesce(async () => {
    const gate = Promise.withResolvers<void>();
    gates.push(gate);
    await gate.promise;
  });
  return { gates, call };
}

const settle = () => new Promise(setImmediate);

test("calls made during a run share the next run", async () => {
  const { gates, call } = gated();
  const first = call();
  const [second, third] = [call(), call()];
  assert.equal(second, third);
  assert.notEqual(first, second);
  await settle();
  assert.equal(gates.length, 1);
  gates[0]?.resolve();
  await first;
  await settle();
  assert.equal(gates.length, 2);
  gates[1]?.resolve();
  await second;
});

test("never runs twice at the same time, regardless of the order of calls", async () => {
  let running = 0;
  let runs = 0;
  const call = coalesce(async () => {
    running += 1;
    runs += 1;
    assert.equal(running, 1);
    for (let turn = runs % 3; turn > 0; turn--) await Promise.resolve();
    running -= 1;
  });
  const all: Promise<void>[] = [];
  for (let turn = 0; turn < 200; turn++) {
    all.push(call());
    if (turn % 2 === 0) await Promise.resolve();
  }
  await Promise.all(all);
  assert.ok(runs > 1 && runs <= 200);
});

test("a failed run rejects only its own callers, and the next run still starts", async () => {
  let runs = 0;
  const call = coalesce(async () => {
    runs += 1;
    await settle();
    if (runs === 1) throw new Error("first");
  });
  const [first, second] = [call(), call()];
  await assert.rejects(first, /first/);
  await second;
  assert.equal(runs, 2);
});
