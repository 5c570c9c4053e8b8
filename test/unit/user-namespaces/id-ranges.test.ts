import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createIdRanges } from "../../../src/user-namespaces/id-ranges.ts";

const unit = 65_536;

test("records the range of an existing pod, and rejects a range that is not available", () => {
  const ranges = createIdRanges({ first: 2 * unit, length: 4 * unit }, unit, () => 0);
  ranges.record("a", { first: 3 * unit, length: unit });
  ranges.record("a", { first: 3 * unit, length: unit });
  const refusals: [string, number, number, string][] = [
    ["a", 4 * unit, unit, 'different user namespace range already used by pod "a"'],
    ["b", 3 * unit, unit, 'range picked for pod "b" already taken'],
    ["b", 3 * unit, 2 * unit, "wrong user namespace length 131072"],
    ["b", 3 * unit + 1, unit, "wrong user namespace offset specified 196609"],
    ["b", unit, unit, "id 65536 is out of range"],
    ["b", 6 * unit, unit, "id 393216 is out of range"],
  ];
  for (const [uid, first, length, message] of refusals)
    assert.throws(() => ranges.record(uid, { first, length }), { message });
  assert.deepEqual(ranges.get("a"), { first: 3 * unit, length: unit });
  assert.equal(ranges.get("b"), undefined);
});

test("fails with the kubelet's message once all ranges are taken", () => {
  const ranges = createIdRanges({ first: unit, length: 2 * unit }, unit, () => 1);
  assert.deepEqual([ranges.allocate("a").first, ranges.allocate("b").first], [2 * unit, unit]);
  assert.equal(ranges.isFull(), true);
  assert.throws(() => ranges.allocate("c"), {
    message: "could not find an empty slot to allocate a user namespace",
  });
  ranges.release("a");
  ranges.release("a");
  assert.deepEqual(ranges.allocate("c"), { first: 2 * unit, length: unit });
});

const step = fc.record({
  pod: fc.integer({ min: 0, max: 15 }),
  start: fc.nat(1000),
  does: fc.constantFrom("allocate", "release"),
});

test("ranges never overlap, stay within the available IDs, and are all usable again", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 1, max: 3 }),
      fc.array(step),
      (count, units, steps) => {
        const idsPerPod = units * unit;
        const available = { first: 2 * idsPerPod, length: count * idsPerPod };
        let start = 0;
        const ranges = createIdRanges(available, idsPerPod, (below) => start % below);
        const live = new Map<string, number>();
        for (const { pod, start: random, does } of steps) {
          const uid = `pod-${pod}`;
          start = random;
          if (does === "release") {
            ranges.release(uid);
            live.delete(uid);
          } else if (!live.has(uid) && live.size < count) {
            const { first, length } = ranges.allocate(uid);
            assert.equal(length, idsPerPod);
            assert.ok(first >= available.first && first + length <= available.first + available.length);
            assert.equal(first % idsPerPod, 0);
            live.set(uid, first);
          }
          assert.equal(new Set(live.values()).size, live.size);
          assert.equal(ranges.isFull(), live.size === count);
          for (const [known, first] of live) assert.equal(ranges.get(known)?.first, first);
        }
      },
    ),
  );
});
