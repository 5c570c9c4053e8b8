import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../../../src/api/api-error.ts";
import { deleteGraftedNodes } from "../../../src/fleet/deletion.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient } from "../api/fake-client.ts";

interface FakeObject {
  readonly name: string;
  /** Milliseconds from its deletion to its end; undefined if it never ends. */
  readonly endsAfter?: number;
  readonly message?: string;
  /** True if it only shows a node of the configuration. */
  readonly isStatic?: boolean;
  deletedAt?: number;
}

function start(objects: FakeObject[], { isDefined = true } = {}) {
  const clock = fakeClock();
  const said: string[] = [];
  const standing = () =>
    objects.filter(
      ({ deletedAt, endsAfter = Infinity }) => deletedAt === undefined || clock.now() - deletedAt < endsAfter,
    );
  const wire = ({ name, message, isStatic, deletedAt }: FakeObject) => ({
    metadata: { name, namespace: "edge", uid: name, ...(deletedAt !== undefined && { deletionTimestamp: "then" }) },
    spec: { ssh: {}, ...(isStatic && { static: { release: "r", provider: "cri" } }) },
    status: { conditions: [{ type: "Ready", status: "False", reason: "Leaving", message }] },
  });
  const client = fakeClient(({ verb, path }: Call) => {
    if (!isDefined) throw new ApiError("not_found", "no such kind", { status: 404, reason: "NotFound" });
    if (verb === "list") return { items: standing().map(wire) };
    const object = standing().find(({ name }) => path.endsWith(`/${name}`));
    if (verb !== "delete" || !object) throw new ApiError("not_found", path, { status: 404, reason: "NotFound" });
    object.deletedAt = clock.now();
    return {};
  });
  const mayHave = (name: string) => name.startsWith("edge-");
  const deps = {
    client,
    clock,
    namespace: "edge",
    mayHave,
    timeoutMs: 60_000,
    say: (line: string) => void said.push(line),
  };
  const run = async () => {
    const remaining = deleteGraftedNodes(deps, never);
    for (let turns = 0; turns < 100; turns += 1) await clock.advance(1_000);
    return await remaining;
  };
  const deleted = () => client.calls.filter(({ verb }) => verb === "delete").map(({ path }) => path.split("/").at(-1));
  return { run, said, deleted, clock };
}

test("deletes only objects that configure the release's nodes under their names, and waits until they are gone", async () => {
  const { run, said, deleted } = start([
    { name: "edge-1", endsAfter: 3_000, message: "cleaning the machine" },
    { name: "edge-2", endsAfter: 9_000, message: "pods end" },
    { name: "edge-3", isStatic: true },
    { name: "other" },
  ]);
  assert.deepEqual(await run(), []);
  assert.deepEqual(deleted(), ["edge-1", "edge-2"]);
  assert.deepEqual(said, [
    "GraftedNode edge-1: deleted; waiting for its machine to leave",
    "GraftedNode edge-2: deleted; waiting for its machine to leave",
    "GraftedNode edge-1: cleaning the machine",
    "GraftedNode edge-2: pods end",
    "no GraftedNodes are left",
  ]);
});

test("lists the objects that remain at the time limit, and deletes no object twice", async () => {
  const { run, said, deleted } = start([
    { name: "edge-1", endsAfter: 1_000 },
    { name: "edge-2" },
    { name: "edge-3", deletedAt: 0 },
  ]);
  assert.deepEqual(await run(), ["edge-2", "edge-3"]);
  assert.deepEqual(deleted(), ["edge-1", "edge-2"]);
  assert.equal(said.at(-1), "GraftedNodes that have not left within 1m0s: edge-2, edge-3");
});

test("does nothing if the CustomResourceDefinition is missing", async () => {
  const { run, said } = start([], { isDefined: false });
  assert.deepEqual(await run(), []);
  assert.deepEqual(said, ["no GraftedNodes are left"]);
});
