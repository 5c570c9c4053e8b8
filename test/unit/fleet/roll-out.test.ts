import assert from "node:assert/strict";
import { test } from "node:test";
import {
  allowedUnavailable,
  createRollOut,
  type Disruption,
  type RollOutMember,
  type RunningNode,
} from "../../../src/fleet/roll-out.ts";

/** A pool's nodes: each restarts as soon as it may. */
function pool(names: readonly string[], disruption: Disruption = {}) {
  const rollOut = createRollOut();
  const nodes = new Map<string, RunningNode | undefined>(
    names.map((name) => [name, { template: "old", isReady: true }]),
  );
  let template = "old";
  let now = 0;
  const advance = (ms = 0) => {
    now += ms;
    const members = [...nodes].map(([name, node]) => ({ name, node }));
    return rollOut.advance({ template, disruption, members }, now);
  };
  return {
    advance,
    change: (text: string) => (template = text),
    set: (name: string, node: { readonly template?: string; readonly isReady: boolean }) =>
      nodes.set(name, { template, ...node }),
  };
}

test("restarts no node while the template is unchanged", () => {
  const { advance } = pool(["a", "b"]);
  assert.deepEqual(advance(), {
    woken: [],
    restarting: [],
    updated: 2,
    isUnderWay: false,
    verdict: { status: "True", reason: "Complete", message: "all nodes run with the template" },
  });
});

test("restarts the next node once the previous one has been Ready for ten seconds", () => {
  const { advance, change, set } = pool(["b", "a", "c"], { maxUnavailable: 1 });
  change("new");
  assert.deepEqual(advance().woken, ["a"]);
  assert.deepEqual(advance().restarting, ["a"]);
  set("a", { isReady: false });
  const { woken: next, restarting } = advance(30_000);
  assert.deepEqual([next, restarting], [[], []]);
  set("a", { isReady: true });
  assert.deepEqual([advance().woken, advance(9_999).woken], [[], []]);
  const { woken, updated, verdict } = advance(1);
  assert.deepEqual([woken, updated, verdict.reason], [["b"], 1, "Progressing"]);
  assert.equal(verdict.message, "1 of 3 nodes run with the template");
});

test("a restarted node keeps its turn if it fails within ten seconds of becoming Ready", () => {
  const { advance, change, set } = pool(["a", "b"]);
  change("new");
  advance();
  set("a", { isReady: true });
  advance();
  set("a", { isReady: false });
  advance(5_000);
  set("a", { isReady: true });
  advance(5_000);
  assert.deepEqual(advance(9_000).woken, []);
  assert.deepEqual(advance(1_000).woken, ["b"]);
});

test("pauses when a restarted node is not Ready after a minute, and continues once it is", () => {
  const { advance, change, set } = pool(["a", "b", "c"], { maxUnavailable: 2 });
  change("new");
  assert.deepEqual(advance().woken, ["a", "b"]);
  set("a", { isReady: false });
  set("b", { isReady: true });
  advance();
  const { woken, restarting, isUnderWay, verdict } = advance(60_000);
  assert.deepEqual([woken, restarting, isUnderWay], [[], [], true]);
  assert.deepEqual([verdict.status, verdict.reason], ["False", "Paused"]);
  assert.equal(
    verdict.message,
    "2 of 3 nodes run with the template; of these, not Ready: a: fix the template or these machines, or raise disruption.pauseOnFailures",
  );
  set("a", { isReady: true });
  advance();
  assert.deepEqual(advance(10_000).woken, ["c"]);
});

test("continues while fewer nodes have failed than pauseOnFailures, within maxUnavailable", () => {
  const { advance, change, set } = pool(["a", "b", "c"], { maxUnavailable: 2, pauseOnFailures: 2 });
  change("new");
  advance();
  set("a", { isReady: false });
  set("b", { isReady: true });
  advance(50_000);
  assert.deepEqual(advance(10_000).woken, ["c"]);
});

test("a node that is not Ready restarts at once, and its failure does not pause the roll-out", () => {
  const { advance, change, set } = pool(["a", "b"], { maxUnavailable: 1 });
  change("new");
  set("b", { template: "old", isReady: false });
  assert.deepEqual(advance().woken, ["a", "b"]);
  set("a", { isReady: true });
  set("b", { isReady: false });
  advance();
  assert.equal(advance(60_000).verdict.reason, "Complete");
});

test("a corrected template starts the roll-out again, and restarts failed nodes at once", () => {
  const { advance, change, set } = pool(["a", "b"], { maxUnavailable: 1 });
  change("broken");
  advance();
  set("a", { isReady: false });
  assert.equal(advance(60_000).verdict.reason, "Paused");
  change("mended");
  assert.deepEqual(advance().woken, ["b", "a"]);
});

test("a node keeps its turn while it is stopped, but loses it when its member is gone", () => {
  const rollOut = createRollOut();
  const advance = (members: readonly RollOutMember[]) => {
    const { woken, isUnderWay } = rollOut.advance({ template: "new", disruption: { maxUnavailable: 1 }, members }, 0);
    return [woken, isUnderWay];
  };
  const node = { template: "old", isReady: true };
  const b = { name: "b", node };
  assert.deepEqual(advance([{ name: "a", node }, b]), [["a"], true]);
  assert.deepEqual(advance([{ name: "a", node: undefined }, b]), [[], true]);
  assert.deepEqual(advance([b]), [["b"], true]);
  assert.deepEqual(advance([]), [[], false]);
});

test("the message names at most ten failed nodes", () => {
  const names = Array.from({ length: 12 }, (_, index) => `n-${String(index).padStart(2, "0")}`);
  const { advance, change, set } = pool([...names, "z"], { maxUnavailable: 12 });
  change("new");
  advance();
  for (const name of names) set(name, { isReady: false });
  assert.match(advance(60_000).verdict.message, /not Ready: n-00, .*n-09, …: fix/);
});

test("maxUnavailable is a number or a percentage, 25% by default, and at least one", () => {
  assert.deepEqual(
    [{}, { maxUnavailable: "50%" }, { maxUnavailable: 3 }, { maxUnavailable: "2" }, { maxUnavailable: 0 }].map(
      (disruption) => [allowedUnavailable(disruption, 10), allowedUnavailable(disruption, 1)],
    ),
    [
      [2, 1],
      [5, 1],
      [3, 3],
      [2, 2],
      [1, 1],
    ],
  );
});
