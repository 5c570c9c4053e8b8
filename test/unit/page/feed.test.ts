import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { createPageBook, noteOf } from "../../../src/page/book.ts";
import { createFeed } from "../../../src/page/feed.ts";
import type { Message } from "../../../src/page/messages.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakePageView } from "../../fakes/page.ts";

function world(names: readonly string[]) {
  const clock = fakeClock();
  const book = createPageBook(
    names.map((nodeName) => ({ nodeName, provider: "cri" })),
    clock,
  );
  const views = new Map(names.map((name) => [name, fakePageView({ name, pods: 2 }, clock.now)]));
  for (const [name, view] of views) book.pageOf(name)?.show(view);
  const feed = createFeed({ book, version: "1", clock, log: createLogger(0, { write: () => undefined }) });
  const stop = new AbortController();
  const ended = feed.run(stop.signal);
  const listen = (sees: (node: string) => boolean = () => true) => {
    const got: Message[] = [];
    const end = feed.listen({ sees, send: (text) => void got.push(JSON.parse(text) as Message) });
    return { got, end, kinds: () => got.map(({ kind }) => kind) };
  };
  return { clock, book, views, listen, stop: () => (stop.abort(), ended) };
}

test("nothing is measured until somebody listens, nor after the last one has gone", async () => {
  const { clock, views, listen, stop } = world(["a"]);
  const looks = () => views.get("a")?.looks() ?? 0;
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

test("whoever comes later gets what is known at once, and only changes after that", async () => {
  const { clock, listen, stop } = world(["a"]);
  const first = listen();
  await clock.advance(1);
  assert.deepEqual(first.kinds(), ["hello", "node", "pods", "usage"]);
  assert.deepEqual(listen().kinds(), ["hello", "node", "pods", "usage"]);
  await clock.advance(3_000);
  assert.deepEqual(first.kinds().slice(4), ["usage"]);
  await stop();
});

test("a listener gets nothing of nodes that it may not see", async () => {
  const { clock, book, listen, stop } = world(["a", "b"]);
  const { got } = listen((node) => node === "a");
  await clock.advance(1);
  book.pageOf("b")?.event({ kind: "Node", name: "b" }, "Normal", "Starting", "of b");
  book.line('{"level":50,"msg":"of the process"}');
  book.pageOf("a")?.event({ kind: "Node", name: "a" }, "Normal", "Starting", "of a");
  const text = JSON.stringify(got);
  assert.match(text, /of a/);
  assert.doesNotMatch(text, /of b|of the process|"b"|b-0/);
  await stop();
});

test("a node whose link is broken is not measured, and one that cannot be measured still shows its pods", async () => {
  const { clock, book, views, listen, stop } = world(["a", "b"]);
  book.pageOf("a")?.linked({ trouble: () => ({ reason: "LinkDown", message: "gone" }) });
  const view = views.get("b");
  if (view) book.pageOf("b")?.show({ ...view, summary: () => Promise.reject(new Error("no cgroups")) });
  const { got } = listen();
  await clock.advance(1);
  assert.equal(views.get("a")?.looks(), 0);
  assert.deepEqual(got.flatMap((message) => (message.kind === "pods" ? [message.node] : [])).toSorted(), ["a", "b"]);
  assert.deepEqual(
    got.filter(({ kind }) => kind === "usage"),
    [],
  );
  await stop();
});

test("of events and of the log's warnings the newest 200 each are kept", () => {
  const book = createPageBook([{ nodeName: "a", provider: "cri" }], fakeClock());
  for (let index = 0; index < 250; index++)
    book.pageOf("a")?.event({ kind: "Pod", namespace: "n", name: "p" }, "Warning", "R", `${index}`);
  book.line('{"level":30,"node":"a","msg":"fine"}');
  book.line('{"level":40,"node":"a","msg":"not fine"}');
  const notes = book.notes();
  assert.equal(notes.length, 201);
  assert.deepEqual([notes[0]?.text, notes[0]?.about, notes.at(-1)?.text], ["50", "Pod/n/p", "not fine"]);
});

test("what comes again and again is one note, with its number of times", () => {
  const book = createPageBook([{ nodeName: "a", provider: "cri" }], fakeClock());
  const page = book.pageOf("a");
  for (const text of ["pulled", "back-off", "back-off", "back-off"])
    page?.event({ kind: "Pod", namespace: "n", name: "p" }, "Warning", "R", text);
  page?.event({ kind: "Pod", namespace: "n", name: "q" }, "Warning", "R", "back-off");
  assert.deepEqual(
    book.notes().map(({ id, times, about, text }) => [id, times, about, text]),
    [
      [1, 1, "Pod/n/p", "pulled"],
      [2, 3, "Pod/n/p", "back-off"],
      [3, 1, "Pod/n/q", "back-off"],
    ],
  );
});

test("of a log line the page takes its node, pod, reason, sentence and error, and no other field", () => {
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
