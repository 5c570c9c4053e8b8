import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "../../../src/objects.ts";
import { createPodManager } from "../../../src/sync/pod-manager.ts";
import { aPod } from "../../fakes/pods.ts";

const fromFile = (uid: string): Pod =>
  aPod({}, { uid, annotations: { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid } });
const mirrorOf = (hash: string, uid: string): Pod =>
  aPod({}, { uid, annotations: { "kubernetes.io/config.source": "api", "kubernetes.io/config.mirror": hash } });

test("a static pod is found by its name, its mirror pod beside it and never in its place", () => {
  const pods = createPodManager();
  const [pod, mirror] = [fromFile("h"), mirrorOf("h", "m")];
  pods.take({ op: "ADD", source: "api", pods: [mirror] });
  assert.deepEqual([pods.list(), pods.byName("default", "p"), pods.get("m")], [[], undefined, undefined]);
  pods.take({ op: "ADD", source: "file", pods: [pod] });
  assert.deepEqual([pods.list(), pods.byName("default", "p"), pods.statics()], [[pod], pod, [pod]]);
  assert.deepEqual([pods.mirrors(), pods.mirror("default", "p")], [[mirror], mirror]);
});

test("the API server shows a static pod by the mirror pod of that version alone, and any other by itself", () => {
  const pods = createPodManager();
  const plain = aPod({}, { uid: "api", name: "plain" });
  pods.take({ op: "ADD", source: "api", pods: [plain] });
  assert.equal(pods.shown("api"), plain);
  pods.take({ op: "ADD", source: "file", pods: [fromFile("h2")] });
  assert.equal(pods.shown("h2"), undefined);
  pods.take({ op: "ADD", source: "api", pods: [mirrorOf("h1", "m1")] });
  assert.equal(pods.shown("h2"), undefined, "that of an older version");
  const now = mirrorOf("h2", "m2");
  pods.take({ op: "ADD", source: "api", pods: [now] });
  assert.equal(pods.shown("h2"), now);
  pods.take({ op: "REMOVE", source: "api", pods: [mirrorOf("h1", "m1")] });
  assert.equal(pods.shown("h2"), now, "what is gone is the older one");
  pods.take({ op: "REMOVE", source: "api", pods: [now] });
  assert.deepEqual([pods.shown("h2"), pods.get("h2")?.metadata.uid], [undefined, "h2"]);
});

test("of two sources' pods of one name the other is found when one goes", () => {
  const pods = createPodManager();
  const [file, http] = [fromFile("f"), fromFile("h")];
  pods.take({ op: "ADD", source: "file", pods: [file] });
  pods.take({ op: "ADD", source: "http", pods: [http] });
  pods.take({ op: "REMOVE", source: "http", pods: [http] });
  assert.equal(pods.byName("default", "p"), file);
});
