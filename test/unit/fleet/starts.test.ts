import assert from "node:assert/strict";
import { test } from "node:test";
import { createStarts } from "../../../src/fleet/starts.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { fakeClock } from "../../fakes/clock.ts";

/** Nodes that wait to start: the numbers of those that have. */
function waiting(count: number, hasStarted = true) {
  const clock = fakeClock();
  const startInTurn = createStarts(clock);
  const stop = new AbortController();
  const started: number[] = [];
  const reports = Array.from({ length: count }, (_, index) =>
    createReportedNode({ name: `m-${index}`, provider: "ssh" }),
  );
  const ended = reports.map((report, index) =>
    startInTurn(
      async () => {
        started.push(index);
        return hasStarted;
      },
      report,
      stop.signal,
    ),
  );
  return { clock, started, reports, ended, stop };
}

test("sixteen nodes start at once; the next one starts when one of them reports a problem", async () => {
  const { clock, started, reports } = waiting(20);
  await clock.advance(10);
  assert.equal(started.length, 16);
  reports[3]?.onProgress({ trouble: { reason: "LoginRefused", message: "no" } });
  await clock.advance(10);
  assert.equal(started.length, 17);
});

test("nodes that are not Ready after five seconds no longer delay the others", async () => {
  const { clock, started } = waiting(20);
  await clock.advance(4_000);
  assert.equal(started.length, 16);
  await clock.advance(1_100);
  assert.equal(started.length, 20);
});

test("an object that cannot be served does not count as a starting node", async () => {
  const { clock, started } = waiting(40, false);
  await clock.advance(10);
  assert.equal(started.length, 40);
});

test("a node that is stopped while it waits for its turn does not start", async () => {
  const { clock, started, ended, stop } = waiting(17);
  await clock.advance(10);
  stop.abort();
  await assert.rejects(Promise.all(ended));
  assert.equal(started.length, 16);
});
