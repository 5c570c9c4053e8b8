import assert from "node:assert/strict";
import { test } from "node:test";
import { gracePeriods, groupByPriority, totalGracePeriodMs, podGraceSeconds } from "../../../src/shutdown/groups.ts";
import { aPod } from "../../fakes/pods.ts";

const critical = 2_000_000_000;

test("builds two groups from the two periods, critical pods last; a priority list is sorted and takes precedence", () => {
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
  assert.equal(totalGracePeriodMs(sorted), 10_000);
});

test("puts a pod into the group with the highest priority not above its own, or into the lowest", () => {
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

test("uses the pod's own grace period, limited by its group's", () => {
  const of = (terminationGracePeriodSeconds: number | undefined) =>
    podGraceSeconds(
      {
        spec: { containers: [], ...(terminationGracePeriodSeconds !== undefined && { terminationGracePeriodSeconds }) },
      },
      { priority: 0, seconds: 10 },
    );
  assert.deepEqual([of(3), of(10), of(60), of(0), of(undefined)], [3, 10, 10, 0, 10]);
});
