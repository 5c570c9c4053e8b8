import { type TestPod, testPod } from "../../fakes/pods.ts";
import assert from "node:assert/strict";
import { test } from "node:test";

import type { PodUpdate } from "../../../src/pipeline.ts";
import { createPodConfig } from "../../../src/sources/pod-config.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { createSourceMilestone } from "../../../src/state/values.ts";

function pod(uid: string, more: { metadata?: object; spec?: object; status?: object } = {}): TestPod {
  return testPod({
    metadata: { name: uid, namespace: "ns", uid, ...more.metadata },
    spec: { containers: [{ name: "c", image: "i" }], ...more.spec },
    ...(more.status && { status: more.status }),
  });
}

function start(expected: readonly ("api" | "file")[] = ["api"]) {
  const clock = fakeClock();
  const emitted: PodUpdate[] = [];
  const events: string[] = [];
  const spoken = createSourceMilestone(expected);
  const config = createPodConfig({
    sourcesReady: spoken.writer,
    clock,
    emit: (update) => emitted.push(update),
    events: { event: (about, type, reason, message) => events.push([about.uid, type, reason, message].join(" ")) },
  });
  const take = () =>
    emitted.splice(0).map(({ op, pods }) => `${op} ${pods.map(({ metadata }) => metadata.uid).join(",")}`);
  return { clock, config, emitted, events, spoken: spoken.reader, take };
}

test("adds new pods with their source and the time when they were first seen", () => {
  const t = start();
  t.config.set("api", [pod("a")]);
  const [update] = t.emitted;
  assert.equal(update?.op, "ADD");
  assert.equal(update?.source, "api");
  assert.deepEqual(update?.pods[0]?.metadata.annotations, {
    "kubernetes.io/config.source": "api",
    "kubernetes.io/config.seen": "2026-01-01T00:00:00.000Z",
  });
});

test("emits updates, reconciliations and deletions by what changed in a pod", () => {
  const cases: readonly [string, Parameters<typeof pod>[1], string[]][] = [
    ["nothing", {}, []],
    ["spec", { spec: { activeDeadlineSeconds: 5 } }, ["UPDATE a"]],
    ["labels", { metadata: { labels: { x: "y" } } }, ["UPDATE a"]],
    ["annotations", { metadata: { annotations: { x: "y" } } }, ["UPDATE a"]],
    ["a local annotation", { metadata: { annotations: { "kubernetes.io/config.mirror": "y" } } }, []],
    ["other metadata", { metadata: { generateName: "a-" } }, []],
    ["status", { status: { phase: "Running" } }, ["RECONCILE a"]],
    ["deletion", { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }, ["DELETE a"]],
  ];
  for (const [what, change, expected] of cases) {
    const t = start();
    t.config.set("api", [pod("a", { status: { phase: "Pending" } })]);
    t.take();
    t.config.set("api", [pod("a", { status: { phase: "Pending" }, ...change })]);
    assert.deepEqual(t.take(), expected, what);
  }
});

test("keeps the time when a pod was first seen", async () => {
  const t = start();
  t.config.set("api", [pod("a")]);
  await t.clock.advance(60_000);
  t.config.set("api", [pod("a", { metadata: { labels: { x: "y" } } })]);
  assert.equal(t.emitted[1]?.pods[0]?.metadata.annotations?.["kubernetes.io/config.seen"], "2026-01-01T00:00:00.000Z");
});

test("emits removals before additions, and status changes last", () => {
  const t = start();
  t.config.set("api", [pod("gone"), pod("changed"), pod("deleted"), pod("same")]);
  t.take();
  t.config.set("api", [
    pod("same", { status: { phase: "Running" } }),
    pod("deleted", { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }),
    pod("changed", { metadata: { labels: { x: "y" } } }),
    pod("new"),
  ]);
  assert.deepEqual(t.take(), ["REMOVE gone", "ADD new", "UPDATE changed", "DELETE deleted", "RECONCILE same"]);
});

test("treats a pod recreated under the same name as another pod", () => {
  const t = start();
  t.config.set("api", [pod("one", { metadata: { name: "web" } })]);
  t.take();
  t.config.set("api", [pod("two", { metadata: { name: "web" } })]);
  assert.deepEqual(t.take(), ["REMOVE one", "ADD two"]);
});

test("ignores the second of two pods with the same name, with an event", () => {
  const t = start();
  t.config.set("api", [pod("one", { metadata: { name: "web" } }), pod("two", { metadata: { name: "web" } })]);
  assert.deepEqual(t.take(), ["ADD one"]);
  assert.deepEqual(t.events, [
    'two Warning FailedValidation Error validating pod web_ns(two) from api due to duplicate pod name "web", ignoring',
  ]);
});

test("marks an empty source as ready once; all sources must be ready", () => {
  const t = start(["api", "file"]);
  assert.equal(t.spoken.all(), false);
  t.config.set("file", []);
  assert.deepEqual(t.take(), ["ADD "]);
  assert.equal(t.spoken.all(), false);
  t.config.set("file", []);
  assert.deepEqual(t.take(), []);
  t.config.set("api", [pod("a")]);
  assert.equal(t.spoken.all(), true);
});

test("sources do not affect each other's pods", () => {
  const t = start(["api", "file"]);
  t.config.set("api", [pod("a")]);
  t.take();
  t.config.set("file", [pod("f")]);
  assert.deepEqual(t.take(), ["ADD f"]);
  t.config.set("api", []);
  assert.deepEqual(t.take(), ["REMOVE a"]);
});

test("does not compare unchanged pod objects again", () => {
  const t = start();
  let looks = 0;
  const { spec, ...rest } = pod("a");
  const still: TestPod = {
    ...rest,
    get spec() {
      looks += 1;
      return spec;
    },
  };
  t.config.set("api", [still, pod("b")]);
  const before = looks;
  t.config.set("api", [still, pod("b", { status: { phase: "Running" } })]);
  assert.equal(looks, before);
  assert.deepEqual(t.take(), ["ADD a,b", "RECONCILE b"]);
  t.config.set("api", []);
  assert.deepEqual(t.take(), ["REMOVE a,b"]);
});
