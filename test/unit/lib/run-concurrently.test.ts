import assert from "node:assert/strict";
import { test } from "node:test";
import { onAbort } from "../../../src/lib/runnables.ts";
import { runConcurrently } from "../../../src/lib/run-concurrently.ts";
import { never } from "../../fakes/signals.ts";

test("runs tasks concurrently, and throws the first failure once all have ended", async () => {
  const told: string[] = [];
  const bothBegan = Promise.withResolvers<void>();
  await runConcurrently([async () => bothBegan.promise, async () => bothBegan.resolve()], never);
  const stopped = async (stop: AbortSignal) => {
    await onAbort(stop);
    await Promise.resolve();
    told.push("ended");
    throw new Error("was stopped");
  };
  await assert.rejects(runConcurrently([stopped, async () => Promise.reject(new Error("no room"))], never), {
    message: "no room",
  });
  assert.deepEqual(told, ["ended"]);
});

test("passes the caller's signal to all tasks", async () => {
  const giveUp = new AbortController();
  const waiting = runConcurrently([onAbort, onAbort], giveUp.signal);
  giveUp.abort();
  await waiting;
});
