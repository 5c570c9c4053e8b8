import assert from "node:assert/strict";
import { test } from "node:test";
import { createPullTracker } from "../../../../../providers/docker/image/pull.ts";

test("sums up a pull's bytes and layers", () => {
  const { add, progress } = createPullTracker();
  add({ status: "Pulling from library/busybox", id: "1.37" });
  assert.deepEqual(progress(), { bytes: 0, layers: 0, layersDone: 0 });
  add({ status: "Already exists", id: "a" });
  add({ status: "Pulling fs layer", id: "b" });
  add({ status: "Waiting", id: "c" });
  add({ status: "Downloading", id: "b", progressDetail: { current: 30, total: 100 } });
  assert.deepEqual(progress(), { bytes: 30, layers: 3, layersDone: 1 });
  add({ status: "Downloading", id: "c", progressDetail: { current: 5, total: 50 } });
  assert.deepEqual(progress(), { bytes: 35, totalBytes: 150, layers: 3, layersDone: 1 });
  add({ status: "Download complete", id: "b" });
  add({ status: "Extracting", id: "b", progressDetail: { current: 10, total: 90 } });
  assert.deepEqual(progress(), { bytes: 105, totalBytes: 150, layers: 3, layersDone: 1 });
  add({ status: "Pull complete", id: "b" });
  add({ status: "Pull complete", id: "c" });
  assert.deepEqual(progress(), { bytes: 150, totalBytes: 150, layers: 3, layersDone: 3 });
});

test("a pull is idle while a layer is unpacked, or all layers wait for other pulls", () => {
  const { add, idle } = createPullTracker();
  assert.equal(idle(), false);
  add({ status: "Waiting", id: "a" });
  assert.equal(idle(), true);
  add({ status: "Pulling fs layer", id: "b" });
  assert.equal(idle(), false);
  add({ status: "Download complete", id: "b" });
  add({ status: "Extracting", id: "b" });
  assert.equal(idle(), true);
  add({ status: "Pull complete", id: "b" });
  add({ status: "Downloading", id: "a", progressDetail: { current: 1, total: 2 } });
  assert.equal(idle(), false);
});

test("tracks at most 1,000 layers, however many are reported", () => {
  const { add, progress } = createPullTracker();
  for (let layer = 0; layer < 1_100; layer += 1) add({ status: "Downloading", id: String(layer) });
  assert.equal(progress().layers, 1_000);
});

test("a pull is idle once all layers are fetched, even if no unpacking is reported", () => {
  const { add, idle } = createPullTracker();
  add({ status: "Already exists", id: "a" });
  add({ status: "Downloading", id: "b", progressDetail: { current: 1, total: 2 } });
  add({ status: "Downloading", id: "c", progressDetail: { current: 1, total: 2 } });
  add({ status: "Download complete", id: "b" });
  assert.equal(idle(), false, "the other one is still fetched");
  add({ status: "Download complete", id: "c" });
  assert.equal(idle(), true);
  add({ status: "Pull complete", id: "b" });
  add({ status: "Pull complete", id: "c" });
  assert.equal(idle(), false, "the end is due");
});
