import assert from "node:assert/strict";
import { test } from "node:test";
import { type ContainerLimits, deadContainers } from "../../../src/gc/dead-containers.ts";
import { Container, ContainerState } from "../../../src/gen/cri.ts";

const now = 1_000_000;
const standard: ContainerLimits = { minAgeMs: 0, perContainer: 1, all: -1 };

/** `pod/name:seconds`, created that long ago; a `*` marks running containers. */
function containers(...texts: readonly string[]): readonly Container[] {
  return texts.map((text) => {
    const [, uid = "", name = "", seconds, runs] = /^(.*)\/(.*):(\d+)(\*?)$/.exec(text) ?? [];
    return Container.fromPartial({
      id: text,
      metadata: { name },
      labels: { "io.kubernetes.pod.uid": uid },
      state: runs ? ContainerState.CONTAINER_RUNNING : ContainerState.CONTAINER_EXITED,
      createdAt: BigInt(now - Number(seconds) * 1000) * 1_000_000n,
    });
  });
}

function goners(texts: readonly string[], limits: Partial<ContainerLimits>, over: readonly string[] = []) {
  const dead = deadContainers({
    containers: containers(...texts),
    limits: { ...standard, ...limits },
    now,
    isFinished: (uid) => over.includes(uid),
  });
  return dead.map(({ id }) => id);
}

test("keeps the newest dead containers of each name, up to the limit", () => {
  const all = ["a/c:4", "a/c:2", "a/c:3", "a/c:1*", "a/d:5", "b/c:6", "b/c:7"];
  assert.deepEqual(goners(all, {}), ["a/c:4", "a/c:3", "b/c:7"]);
  assert.deepEqual(goners(all, { perContainer: 2 }), ["a/c:4"]);
  assert.deepEqual(goners(all, { perContainer: 0 }), ["a/c:4", "a/c:3", "a/c:2", "a/d:5", "b/c:7", "b/c:6"]);
  assert.deepEqual(goners(all, { perContainer: -1 }), []);
});

test("above the node's limit, keeps an equal share of at least one for each name, then removes the oldest", () => {
  const all = ["a/c:1", "a/c:2", "a/c:3", "b/c:4", "b/c:5", "c/c:6"];
  assert.deepEqual(goners(all, { perContainer: -1, all: 6 }), []);
  assert.deepEqual(goners(all, { perContainer: -1, all: 4 }), ["a/c:3", "a/c:2", "b/c:5"]);
  assert.deepEqual(goners(all, { perContainer: -1, all: 2 }), ["a/c:3", "a/c:2", "b/c:5", "c/c:6"]);
  assert.deepEqual(goners(all, { all: 0 }).length, all.length);
});

test("keeps containers younger than the minimum age, and does not count them", () => {
  const all = ["a/c:10", "a/c:20", "a/c:30"];
  assert.deepEqual(goners(all, { minAgeMs: 15_000 }), ["a/c:30"]);
  assert.deepEqual(goners(all, { minAgeMs: 60_000, perContainer: 0 }), []);
});

test("removes all dead containers of terminated pods regardless of limits", () => {
  assert.deepEqual(goners(["a/c:1", "a/c:2", "a/d:1*", "b/c:1"], { perContainer: 5 }, ["a"]), ["a/c:2", "a/c:1"]);
});
