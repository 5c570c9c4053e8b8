import assert from "node:assert/strict";
import { test } from "node:test";
import { localHost } from "../../providers/local/host.ts";
import { readLines } from "../../src/host/command-lines.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { never } from "../fakes/signals.ts";
import { isAlive, identify } from "../harness/processes.ts";
import { argvOf } from "../harness/argv.ts";
import { waitFor } from "../harness/wait.ts";

const maxGrowth = 64 << 20;

/** Runs a helper on this machine. @returns what its lines ended with, and by how much memory grew meanwhile. */
async function helper(script: string) {
  await using host = localHost({ clock: systemClock() });
  const program = await host.spawn(argvOf(["sh", "-c", script]));
  const id = identify(program.pid);
  const begun = process.memoryUsage();
  let most = 0;
  const look = () => {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    most = Math.max(most, heapUsed + arrayBuffers - begun.heapUsed - begun.arrayBuffers);
  };
  const timer = setInterval(look, 5);
  const [outcome] = await Promise.allSettled([readLines(program, () => undefined, never)]);
  clearInterval(timer);
  look();
  await waitFor("the helper to be gone", () => id === undefined || !isAlive(id));
  return { outcome, most };
}

test("kills a helper that prints 500 MiB without a newline, at 64 KiB", { timeout: 60_000 }, async () => {
  const { outcome, most } = await helper("head -c 524288000 /dev/zero; sleep 60");
  assert.equal(outcome.status === "rejected" && (outcome.reason as { code: string }).code, "resource_exhausted");
  assert.ok(most < maxGrowth, `memory grew by ${most >> 20} MiB`);
});

test("keeps 4 KiB of a helper's 600 MiB on standard error, and lets it continue", {
  timeout: 60_000,
}, async () => {
  const { outcome, most } = await helper("head -c 629145600 /dev/zero | tr '\\0' x >&2");
  assert.equal(outcome.status === "fulfilled" && outcome.value.length, 4_096);
  assert.ok(most < maxGrowth, `memory grew by ${most >> 20} MiB`);
});
