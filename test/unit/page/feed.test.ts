import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { createFeed } from "../../../src/page/feed.ts";
import type { Message } from "../../../src/page/messages.ts";
import { noteOf } from "../../../src/report/notes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeFleet, fakeMachine, fakeNodeWork, fakeReports } from "../../fakes/page.ts";

function world(names: readonly string[], fleet?: ReturnType<typeof fakeFleet>) {
  const clock = fakeClock();
  const reports = { ...fakeReports(names, clock), ...(fleet && { fleet }) };
  const works = new Map(names.map((name) => [name, fakeNodeWork({ name, pods: 2 }, clock.now)]));
  for (const [name, work] of works) reports.node(name)?.onRunning(work);
  const feed = createFeed({ reports, version: "1", clock, log: silentLog() });
  const stop = new AbortController();
  const ended = feed.run(stop.signal);
  const listen = (maySee: (node: string) => boolean = () => true, maySeeFleet = true) => {
    const got: Message[] = [];
    const end = feed.subscribe({ maySee, maySeeFleet, send: (text) => void got.push(JSON.parse(text) as Message) });
    return { got, end, kinds: () => got.map(({ kind }) => kind) };
  };
  return { clock, ...reports, works, listen, stop: () => (stop.abort(), ended) };
}

test("measures only while there are subscribers", async () => {
  const { clock, works, listen, stop } = world(["a"]);
  const looks = () => works.get("a")?.looks() ?? 0;
  await clock.advance(60_000);
  assert.deepEqual([looks(), clock.pending], [0, 0]);
  const [one, other] = [listen(), listen()];
  await clock.advance(10_000);
  const during = looks();
  assert.ok(during >= 3, `${during} looks`);
  one.end();
  await clock.advance(10_000);
  assert.ok(looks() > during);
  other.end();
  const after = looks();
  await clock.advance(60_000);
  assert.equal(looks(), after);
  await stop();
});

test("sends the current state to a new subscriber, then only changes", async () => {
  const { clock, listen, stop } = world(["a"]);
  const first = listen();
  await clock.advance(1);
  assert.deepEqual(first.kinds(), ["hello", "node", "pods", "usage"]);
  assert.deepEqual(listen().kinds(), ["hello", "node", "pods", "usage"]);
  await clock.advance(3_000);
  assert.deepEqual(first.kinds().slice(4), ["usage"]);
  await stop();
});

test("notifies subscribers of a new node, and polls it too", async () => {
  const { clock, add, listen, stop } = world(["a"]);
  const { got, kinds } = listen();
  await clock.advance(1);
  const before = kinds().length;
  add("b");
  await clock.advance(1);
  assert.deepEqual(
    got.slice(before).flatMap((message) => (message.kind === "hello" ? message.nodes : [])),
    ["a", "b"],
  );
  assert.ok(got.slice(before).some((message) => message.kind === "node" && message.node.name === "b"));
  await stop();
});

test("sends a subscriber nothing about nodes that it may not see", async () => {
  const { clock, node, notes, listen, stop } = world(["a", "b"]);
  const { got } = listen((node) => node === "a");
  await clock.advance(1);
  node("b")?.event?.({ kind: "Node", name: "b" }, "Normal", "Starting", "of b");
  notes.line('{"level":50,"msg":"of the process"}');
  node("a")?.event?.({ kind: "Node", name: "a" }, "Normal", "Starting", "of a");
  const text = JSON.stringify(got);
  assert.match(text, /of a/);
  assert.doesNotMatch(text, /of b|of the process|"b"|b-0/);
  await stop();
});

/** What messages say about the release: the names of all its other machines, or one of these with its owner. */
const ofFleet = (got: readonly Message[]) =>
  got.flatMap((message) => {
    if (message.kind === "fleet") return [message.machines.join()];
    return message.kind === "machine" ? [`${message.machine.name} by ${message.machine.owner}`] : [];
  });

test("sends the machines of other replicas, then only those that change, at most once a second", async () => {
  const fleet = fakeFleet([fakeMachine("m-1"), fakeMachine("m-2")]);
  const { clock, listen, stop } = world(["a"], fleet);
  const { got } = listen();
  await clock.advance(2_000);
  assert.deepEqual(ofFleet(got), ["m-1,m-2", "m-1 by graftlet-b", "m-2 by graftlet-b"]);
  const [looks, heard] = [fleet.looks(), got.length];
  await clock.advance(60_000);
  assert.equal(fleet.looks(), looks, "without a change nothing is computed");
  for (let turn = 0; turn < 20; turn += 1) {
    fleet.change([fakeMachine("m-1"), fakeMachine("m-2", { owner: `graftlet-${turn}` })]);
    await clock.advance(100);
  }
  await clock.advance(2_000);
  assert.ok(fleet.looks() - looks <= 4, `${fleet.looks() - looks} reports in 4 s`);
  const since = ofFleet(got.slice(heard));
  assert.equal(since.at(-1), "m-2 by graftlet-19");
  assert.deepEqual(
    since.filter((text) => text.startsWith("m-1")),
    [],
  );
  fleet.change([fakeMachine("m-2", { owner: "graftlet-19" })]);
  await clock.advance(2_000);
  assert.deepEqual(ofFleet(got).at(-1), "m-2");
  assert.deepEqual(ofFleet(listen().got), ["m-2", "m-2 by graftlet-19"], "what is known is sent at once");
  await stop();
});

test("computes nothing about the release without a page that may show it", async () => {
  const fleet = fakeFleet([fakeMachine("m-1")]);
  const { clock, listen, add, stop } = world(["a"], fleet);
  const stranger = listen(() => true, false);
  fleet.change([fakeMachine("m-2")]);
  add("b");
  await clock.advance(5_000);
  assert.equal(fleet.looks(), 0);
  assert.doesNotMatch(JSON.stringify(stranger.got), /m-1|m-2|graftlet-|"fleet":true/);
  const viewer = listen();
  await clock.advance(5_000);
  assert.ok(viewer.got.some((message) => message.kind === "hello" && message.fleet));
  assert.deepEqual(ofFleet(viewer.got), ["m-2", "m-2 by graftlet-b"]);
  assert.deepEqual(ofFleet(stranger.got), []);
  viewer.end();
  stranger.end();
  const looks = fleet.looks();
  fleet.change([]);
  await clock.advance(60_000);
  assert.deepEqual([fleet.looks(), fleet.listening(), clock.pending], [looks, 0, 0]);
  await stop();
});

test("looks at the release again when a node has come", async () => {
  const fleet = fakeFleet([fakeMachine("m-1")]);
  const { clock, listen, add, stop } = world(["a"], fleet);
  const { got } = listen();
  await clock.advance(5_000);
  const looks = fleet.looks();
  add("m-1");
  await clock.advance(5_000);
  assert.equal(fleet.looks(), looks + 1);
  assert.deepEqual(ofFleet(got), ["m-1", "m-1 by graftlet-b"], "what has not changed is not sent again");
  await stop();
});

test("does not measure a node with a broken link, and shows pods of a node that cannot be measured", async () => {
  const { clock, node, works, listen, stop } = world(["a", "b"]);
  node("a")?.onTargetOpened({
    trouble: () => ({ reason: "LinkDown", message: "gone" }),
    onChange: () => () => undefined,
  });
  const work = works.get("b");
  if (work) node("b")?.onRunning({ ...work, summary: () => Promise.reject(new Error("no cgroups")) });
  const { got } = listen();
  await clock.advance(1);
  assert.equal(works.get("a")?.looks(), 0);
  assert.deepEqual(got.flatMap((message) => (message.kind === "pods" ? [message.node] : [])).toSorted(), ["a", "b"]);
  assert.deepEqual(
    got.filter(({ kind }) => kind === "usage"),
    [],
  );
  await stop();
});

test("keeps the newest 200 events and 200 log warnings", () => {
  const { node, notes } = fakeReports(["a"], fakeClock());
  for (let index = 0; index < 250; index++)
    node("a")?.event?.({ kind: "Pod", namespace: "n", name: "p" }, "Warning", "R", `${index}`);
  notes.line('{"level":30,"node":"a","msg":"fine"}');
  notes.line('{"level":40,"node":"a","msg":"not fine"}');
  const all = notes.all();
  assert.equal(all.length, 201);
  assert.deepEqual([all[0]?.text, all[0]?.about, all.at(-1)?.text], ["50", "Pod/n/p", "not fine"]);
});

test("combines repeated notes and counts them", () => {
  const { node, notes } = fakeReports(["a"], fakeClock());
  const { event } = node("a") ?? {};
  for (const text of ["pulled", "back-off", "back-off", "back-off"])
    event?.({ kind: "Pod", namespace: "n", name: "p" }, "Warning", "R", text);
  event?.({ kind: "Pod", namespace: "n", name: "q" }, "Warning", "R", "back-off");
  assert.deepEqual(
    notes.all().map(({ id, times, about, text }) => [id, times, about, text]),
    [
      [1, 1, "Pod/n/p", "pulled"],
      [2, 3, "Pod/n/p", "back-off"],
      [3, 1, "Pod/n/q", "back-off"],
    ],
  );
});

test("takes only node, pod, reason, message and error from a log line", () => {
  const line = {
    level: 50,
    node: "a",
    pod: "n/p",
    reason: "R",
    token: "[redacted]",
    other: "hidden",
    err: { message: "why", stack: "x" },
    msg: "failed",
  };
  assert.deepEqual(noteOf(JSON.stringify(line)), {
    source: "log",
    node: "a",
    level: "error",
    about: "n/p",
    reason: "R",
    text: "failed: why",
  });
});
