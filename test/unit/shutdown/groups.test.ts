import assert from "node:assert/strict";
import { test } from "node:test";
import { gracePeriods, groupByPriority, periodRequestedMs, podGraceSeconds } from "../../../src/shutdown/groups.ts";
import { aPod } from "../../fakes/pods.ts";

const critical = 2_000_000_000;

test("the two periods of a configuration are two groups, the critical pods' last; a list of priorities is sorted and counts first", () => {
  assert.deepEqual(gracePeriods({ allMs: 30_000, criticalMs: 10_000, byPriority: [] }), [
    { priority: 0, seconds: 20 },
    { priority: critical, seconds: 10 },
  ]);
  assert.deepEqual(gracePeriods({ allMs: 0, criticalMs: 0, byPriority: [] }), []);
  const byPriority = [
    { priority: 1000, seconds: 7 },
    { priority: -5, seconds: 3 },
  ];
  const sorted = gracePeriods({ allMs: 0, criticalMs: 0, byPriority });
  assert.deepEqual(
    sorted.map(({ priority }) => priority),
    [-5, 1000],
  );
  assert.equal(periodRequestedMs(sorted), 10_000);
});

test("a pod ends with the group of the highest priority that is not above its own, one below all with the lowest", () => {
  const periods = [10, 100, 1000].map((priority) => ({ priority, seconds: 1 }));
  const pods = [5, 10, 99, 100, 999, 1000, critical].map((priority) => aPod({ priority }));
  assert.deepEqual(
    groupByPriority(periods, pods).map((group) => group.pods.map(({ spec }) => spec.priority)),
    [
      [5, 10, 99],
      [100, 999],
      [1000, critical],
    ],
  );
  const none = groupByPriority([{ priority: 0, seconds: 1 }, ...periods], [aPod()]);
  assert.deepEqual(
    none.map((group) => group.pods.length),
    [1, 0, 0, 0],
  );
});

test("a pod has its own grace period, or its group's where that is shorter", () => {
  const of = (terminationGracePeriodSeconds: number | undefined) =>
    podGraceSeconds(
      {
        spec: { containers: [], ...(terminationGracePeriodSeconds !== undefined && { terminationGracePeriodSeconds }) },
      },
      { priority: 0, seconds: 10 },
    );
  assert.deepEqual([of(3), of(10), of(60), of(0), of(undefined)], [3, 10, 10, 0, 10]);
});
