import assert from "node:assert/strict";
import { test } from "node:test";
import { age, bytes, bytesPerSecond, cores, known } from "../../../src/page/browser/format.ts";
import { addSample, keptPoints, latest, newTrack } from "../../../src/page/browser/history.ts";
import { newModel, take, trackOf } from "../../../src/page/browser/model.ts";
import { chosenRows, machineRowsOf, rowsOf, searchedInMachine, searchedInPod } from "../../../src/page/browser/rows.ts";
import { columnsOf, linesOf, mostLines } from "../../../src/page/browser/series.ts";
import type { FleetMessage, PodView } from "../../../src/page/messages.ts";
import { fakeMachine } from "../../fakes/page.ts";

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
  take(made, { kind: "hello", version: "1", now: 5, nodes: ["a"], fleet: true });
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
    chosenRows(rows, searchedInPod, filter, { by, down }).map(({ name }) => name);
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

const fleet = (...machines: readonly string[]): FleetMessage => ({
  kind: "fleet",
  replica: "graftlet-a",
  current: true,
  replicas: [{ name: "graftlet-b", leaving: false, machines: 2 }],
  machines,
});

test("shows the machines of other replicas, those that need attention first, until they are gone", () => {
  const made = model([]);
  const rows = () => (made.fleet ? machineRowsOf(made.fleet) : undefined);
  const names = (filter = "") =>
    chosenRows(rows() ?? [], searchedInMachine, filter, { by: "bad", down: true }).map(({ name }) => name);
  assert.equal(rows(), undefined);
  take(made, fleet("m-1", "m-2", "m-3"));
  assert.deepEqual(rows(), [], "a machine is shown once it is known");
  for (const name of ["m-3", "m-1"]) take(made, { kind: "machine", machine: fakeMachine(name) });
  const { owner: _none, pods: _pods, address: _address, ...unowned } = fakeMachine("m-2");
  const why = { ready: false, reason: "Unowned", message: "no living replica" };
  take(made, { kind: "machine", machine: { ...unowned, ...why } });
  assert.deepEqual(names(), ["m-2", "m-1", "m-3"]);
  assert.deepEqual(names("graftlet-b ready"), ["m-1", "m-3"]);
  assert.deepEqual(rows()?.slice(0, 2), [
    { name: "m-1", owner: "graftlet-b", status: "Ready", bad: false, address: "192.0.2.8", pods: 3, why: "" },
    {
      name: "m-2",
      owner: "",
      status: "Unowned",
      bad: true,
      address: "",
      pods: undefined,
      why: "no living replica",
    },
  ]);
  take(made, fleet("m-1", "m-3"));
  assert.deepEqual([names(), made.fleet?.machines.has("m-2")], [["m-1", "m-3"], false]);
  take(made, { kind: "hello", version: "1", now: 6, nodes: ["a"], fleet: true });
  assert.deepEqual(names(), ["m-1", "m-3"], "a new list of nodes changes no other machine");
  take(made, { kind: "hello", version: "1", now: 6, nodes: ["a"], fleet: false });
  assert.equal(rows(), undefined);
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
  take(made, { kind: "hello", version: "1", now: 6, nodes: ["a"], fleet: false });
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
