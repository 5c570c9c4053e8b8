import assert from "node:assert/strict";
import { test } from "node:test";
import { placementOf, surplusOf } from "../../../src/fleet/placement.ts";

const names = Array.from({ length: 100 }, (_, index) => `edge-${index}`);
const unowned = (all: readonly string[]) => all.map((name) => ({ name, owner: undefined }));
/** Number of objects of each replica. */
function loads(owners: Iterable<string>): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const owner of owners) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  return counts;
}

test("no replica gets more than a fair share of objects without owner, and each object gets one", () => {
  const placed = placementOf(unowned(names), ["a", "b", "c"]);
  assert.equal(placed.size, names.length);
  assert.deepEqual(
    [...loads(placed.values()).values()].toSorted((one, other) => one - other),
    [33, 33, 34],
  );
});

test("the placement does not depend on the order of objects and replicas", () => {
  const placed = placementOf(unowned(names), ["a", "b", "c"]);
  assert.deepEqual(placementOf(unowned(names.toReversed()), ["c", "a", "b"]), placed);
});

test("the objects of a lost replica go to the others in equal parts, and the others keep theirs", () => {
  const placed = placementOf(unowned(names), ["a", "b", "c"]);
  const owned = names.map((name) => ({ name, owner: placed.get(name) === "c" ? undefined : placed.get(name) }));
  const again = placementOf(owned, ["a", "b"]);
  assert.deepEqual([...again.keys()].toSorted(), names.filter((name) => placed.get(name) === "c").toSorted());
  const after = loads(names.map((name) => again.get(name) ?? placed.get(name) ?? ""));
  assert.deepEqual([...after.values()], [50, 50]);
});

test("a replica that accepts no objects gets none, although it still has some", () => {
  const owned = names.map((name, index) => ({ name, owner: index < 50 ? "leaving" : undefined }));
  assert.deepEqual([...loads(placementOf(owned, ["a"]).values())], [["a", 50]]);
});

test("without replicas nothing is placed, and nothing is given away", () => {
  assert.equal(placementOf(unowned(names), []).size, 0);
  assert.deepEqual(surplusOf(unowned(names), [], "a"), []);
});

test("a replica with more than its share gives away the rest, even if that is a single object", () => {
  const owned = (counts: Readonly<Record<string, number>>) =>
    Object.entries(counts).flatMap(([owner, count]) =>
      Array.from({ length: count }, (_, index) => ({ name: `${owner}-${index}`, owner })),
    );
  const surplus = (counts: Readonly<Record<string, number>>, self: string) =>
    surplusOf(owned(counts), Object.keys(counts), self).length;
  assert.deepEqual([surplus({ a: 50, b: 50, c: 0 }, "a"), surplus({ a: 50, b: 50, c: 0 }, "b")], [16, 17]);
  assert.deepEqual([surplus({ a: 2, b: 2, c: 0 }, "a"), surplus({ a: 2, b: 2, c: 0 }, "b")], [0, 1]);
  assert.deepEqual([surplus({ a: 1, b: 1, c: 2 }, "a"), surplus({ a: 1, b: 1, c: 2 }, "c")], [0, 0]);
  assert.equal(surplus({ a: 9 }, "a"), 0);
});

test("giving objects away and taking them ends with equal loads", () => {
  const random = [5, 0, 9, 1, 1, 7, 3, 3, 0, 2];
  for (let replicas = 1; replicas < 6; replicas += 1) {
    const uids = Array.from({ length: replicas }, (_, index) => `r${index}`);
    let objects = names.map((name, index) => ({ name, owner: uids[(random[index % 10] ?? 0) % replicas] }));
    for (let round = 0; round < 200; round += 1) {
      const given = uids.flatMap((uid) => surplusOf(objects, uids, uid).slice(0, 1));
      if (given.length === 0) break;
      const free = objects.map(({ name, owner }) => ({ name, owner: given.includes(name) ? undefined : owner }));
      const placed = placementOf(free, uids);
      objects = free.map(({ name, owner }) => ({ name, owner: owner ?? placed.get(name) }));
    }
    const counts = [...loads(objects.map(({ owner }) => owner ?? "")).values()];
    assert.ok(Math.max(...counts) - Math.min(...counts) <= 1 && counts.length === replicas, counts.join());
  }
});
