import assert from "node:assert/strict";
import { test } from "node:test";
import { age, bytes, bytesPerSecond, cores, known } from "../../../src/page/browser/format.ts";
import { addSample, keptPoints, latest, newTrack } from "../../../src/page/browser/history.ts";
import { newModel, take, trackOf } from "../../../src/page/browser/model.ts";
import { chosenRows, rowsOf } from "../../../src/page/browser/rows.ts";
import { columnsOf, linesOf, mostLines } from "../../../src/page/browser/series.ts";
import type { PodView } from "../../../src/page/messages.ts";

const pod = (uid: string, more: Partial<PodView> = {}): PodView => ({
  uid,
  namespace: "shop",
  name: uid,
  status: "Running",
  bad: false,
  ready: 1,
  of: 1,
  restarts: 0,
  since: 0,
  ...more,
});

function model(pods: readonly PodView[], cpus: readonly number[] = []) {
  const made = newModel();
  take(made, { kind: "hello", version: "1", now: 5, nodes: ["a"] });
  take(made, { kind: "pods", node: "a", pods });
  const measures = pods.map(({ uid }, index) => [uid, { cpu: cpus[index] ?? 0, containers: { app: { cpu: 1 } } }]);
  const usage = { at: 10_000, node: { cpu: 4 }, pods: Object.fromEntries(measures) as Record<string, never> };
  take(made, { kind: "usage", node: "a", usage });
  return made;
}

test("converts counters to rates, and restarts them with their container", () => {
  const track = newTrack();
  for (const [at, rx] of [
    [0, 100],
    [10_000, 1100],
    [10_000, 9999],
    [20_000, 50],
  ] as const)
    addSample(track, at, { rx });
  assert.deepEqual(track.values.rx, [undefined, 100, undefined]);
  assert.deepEqual(track.at, [0, 10_000, 20_000]);
});

test("limits the number of points in a series", () => {
  const track = newTrack();
  for (let index = 0; index < keptPoints + 20; index++) addSample(track, index, { cpu: index });
  assert.deepEqual(
    [track.at.length, track.values.cpu.length, latest(track, "cpu")],
    [keptPoints, keptPoints, keptPoints + 19],
  );
});

test("filters rows by every word and sorts them, unknown values last", () => {
  const rows = rowsOf(model([pod("web"), pod("cart", { status: "CrashLoopBackOff" }), pod("mail")], [1, 3, 2]), {});
  const names = (filter: string, by: "cpu" | "name" | "disk", down: boolean) =>
    chosenRows(rows, filter, { by, down }).map(({ name }) => name);
  assert.deepEqual(names("", "cpu", true), ["cart", "mail", "web"]);
  assert.deepEqual(names("", "name", false), ["cart", "mail", "web"]);
  assert.deepEqual(names("shop/ crash", "cpu", true), ["cart"]);
  assert.deepEqual(names("", "disk", true), ["cart", "mail", "web"]);
});

test("deletes samples of pods that are gone", () => {
  const made = model([pod("web"), pod("cart")]);
  take(made, { kind: "pods", node: "a", pods: [pod("cart")] });
  assert.deepEqual([...made.tracks.keys()].toSorted(), ["container cart app", "node a", "pod cart"]);
});

test("limits a plot to the node and its largest pods, and a pod's plot to its containers", () => {
  const pods = Array.from({ length: 20 }, (_, index) => pod(`p${index}`));
  const made = model(
    pods,
    pods.map((_, index) => index),
  );
  const labels = linesOf(made, { node: "a" }, "cpu").map(({ label }) => label);
  assert.deepEqual([labels.length, ...labels.slice(0, 3)], [mostLines, "whole node", "p19", "p18"]);
  assert.deepEqual(
    linesOf(made, { node: "a", pod: "p1" }, "cpu").map(({ label }) => label),
    ["app"],
  );
  assert.deepEqual(
    linesOf(made, {}, "cpu").map(({ label }) => label),
    ["a"],
  );
  assert.deepEqual(linesOf(made, {}, "disk"), []);
});

test("aligns samples of different nodes to common times", () => {
  const [one, other] = [newTrack(), newTrack()];
  for (const at of [0, 10_000]) addSample(one, at, { cpu: 1 });
  for (const at of [1_000, 21_000]) addSample(other, at, { cpu: 2 });
  assert.deepEqual(
    columnsOf([
      { track: one, metric: "cpu" },
      { track: other, metric: "cpu" },
    ]),
    [
      [0, 10, 20],
      [1, 1, null],
      [2, null, 2],
    ],
  );
});

test("the first message after a reconnect keeps samples and replaces notes", () => {
  const made = model([pod("web")]);
  const note = {
    id: 1,
    at: 20_000,
    times: 1,
    source: "log",
    node: "a",
    level: "error",
    about: "",
    reason: "",
    text: "x",
  } as const;
  take(made, { kind: "notes", notes: [note] });
  take(made, { kind: "hello", version: "1", now: 6, nodes: ["a"] });
  take(made, { kind: "notes", notes: [{ ...note, at: 30_000, times: 2 }] });
  assert.deepEqual(
    [made.notes.map(({ times }) => times), made.now, made.tracks.has(trackOf.pod("web"))],
    [[2], 30_000, true],
  );
});

test("formats numbers with units", () => {
  assert.deepEqual([0, 1023, 1536, 5 * 2 ** 30].map(bytes), ["0 B", "1023 B", "1.50 KiB", "5 GiB"]);
  assert.deepEqual([0, 0.0125, 0.25, 1.5, 12.34].map(cores), ["0", "12.5m", "250m", "1.50", "12.3"]);
  assert.deepEqual([-5, 90_000, 600_000, 7_200_000, 864_000_000].map(age), ["0s", "90s", "10m", "2h", "10d"]);
  assert.deepEqual([known(undefined, bytes), bytesPerSecond(2048)], ["–", "2 KiB/s"]);
});
