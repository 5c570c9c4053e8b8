import assert from "node:assert/strict";
import { test } from "node:test";

import { createPodManager } from "../../../src/sync/pod-manager.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";

const fromFile = (uid: string): TestPod =>
  aPod({}, { uid, annotations: { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid } });
const mirrorOf = (hash: string, uid: string): TestPod =>
  aPod({}, { uid, annotations: { "kubernetes.io/config.source": "api", "kubernetes.io/config.mirror": hash } });

function rig() {
  const { desired, apiPods } = createPodTable(fakeClock());
  const manager = createPodManager({ desired: desired.writer, apiPods: apiPods.writer });
  return { manager, pods: desired.reader, shown: apiPods.reader };
}

test("finds a static pod by name, and its mirror pod separately", () => {
  const { pods, manager } = rig();
  const [pod, mirror] = [fromFile("h"), mirrorOf("h", "m")];
  manager.applyUpdate({ op: "ADD", source: "api", pods: [mirror] });
  assert.deepEqual([pods.list(), pods.byName("default", "p"), pods.get("m")], [[], undefined, undefined]);
  manager.applyUpdate({ op: "ADD", source: "file", pods: [pod] });
  assert.deepEqual([pods.list(), pods.byName("default", "p"), manager.staticPods()], [[pod], pod, [pod]]);
  assert.deepEqual([manager.mirrorPods(), manager.mirrorPod("default", "p")], [[mirror], mirror]);
});

test("uses the mirror pod of the same version as the API copy of a static pod, and every other pod as its own", () => {
  const { pods, manager, shown } = rig();
  const plain = aPod({}, { uid: "api", name: "plain" });
  manager.applyUpdate({ op: "ADD", source: "api", pods: [plain] });
  assert.equal(shown.get("api"), plain);
  manager.applyUpdate({ op: "ADD", source: "file", pods: [fromFile("h2")] });
  assert.equal(shown.get("h2"), undefined);
  manager.applyUpdate({ op: "ADD", source: "api", pods: [mirrorOf("h1", "m1")] });
  assert.equal(shown.get("h2"), undefined, "that of an older version");
  const now = mirrorOf("h2", "m2");
  manager.applyUpdate({ op: "ADD", source: "api", pods: [now] });
  assert.equal(shown.get("h2"), now);
  manager.applyUpdate({ op: "REMOVE", source: "api", pods: [mirrorOf("h1", "m1")] });
  assert.equal(shown.get("h2"), now, "what is gone is the older one");
  manager.applyUpdate({ op: "REMOVE", source: "api", pods: [now] });
  assert.deepEqual([shown.get("h2"), pods.get("h2")?.metadata.uid], [undefined, "h2"]);
});

test("finds the remaining pod once one of two pods with the same name is removed", () => {
  const { pods, manager } = rig();
  const [file, http] = [fromFile("f"), fromFile("h")];
  manager.applyUpdate({ op: "ADD", source: "file", pods: [file] });
  manager.applyUpdate({ op: "ADD", source: "http", pods: [http] });
  manager.applyUpdate({ op: "REMOVE", source: "http", pods: [http] });
  assert.equal(pods.byName("default", "p"), file);
});
