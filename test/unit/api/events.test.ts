import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createEventCorrelator } from "../../../src/api/event-correlator.ts";
import { createEventRecorder, reportedEvents } from "../../../src/api/events.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { bodyOf, type Call, fakeClient, settle, silent } from "./fake-client.ts";

const about = { kind: "Pod", apiVersion: "v1", namespace: "ns", name: "p", uid: "u" };
const happening = (message: string, reason = "Failed") => ({ about, type: "Warning" as const, reason, message });

test("counts a repeated event", () => {
  const correlator = createEventCorrelator(fakeClock());
  const first = correlator.observe(happening("m"));
  const second = correlator.observe(happening("m"));
  const other = correlator.observe(happening("n"));
  assert.equal(first?.count, 1);
  assert.deepEqual([second?.count, second?.name, second?.firstTimestamp], [2, first?.name, first?.firstTimestamp]);
  assert.equal(other?.count, 1);
  assert.notEqual(other?.name, first?.name);
  assert.match(first?.name ?? "", /^p\.[0-9a-f]{16}$/);
});

test("combines similar events from the tenth different message on", () => {
  const correlator = createEventCorrelator(fakeClock());
  const seen = Array.from({ length: 12 }, (_, i) => correlator.observe(happening(`m${i}`)));
  assert.equal(seen[8]?.message, "m8");
  assert.deepEqual(
    seen.slice(9).map((one) => [one?.message, one?.count]),
    [
      ["(combined from similar events): m9", 1],
      ["(combined from similar events): m10", 2],
      ["(combined from similar events): m11", 3],
    ],
  );
});

test("does not combine messages that are more than ten minutes apart", async () => {
  const clock = fakeClock();
  const correlator = createEventCorrelator(clock);
  for (let i = 0; i < 9; i++) correlator.observe(happening(`m${i}`));
  await clock.advance(600_001);
  assert.equal(correlator.observe(happening("late"))?.message, "late");
});

test("allows a burst of 25 events per object, then one every five minutes", async () => {
  const clock = fakeClock();
  const correlator = createEventCorrelator(clock);
  const admitted = () => correlator.observe(happening("m")) !== undefined;
  assert.deepEqual(Array.from({ length: 26 }, admitted).filter(Boolean).length, 25);
  await clock.advance(299_000);
  assert.equal(admitted(), false);
  await clock.advance(1_000);
  assert.equal(admitted(), true);
  assert.equal(admitted(), false);
  assert.notEqual(
    correlator.observe({ ...happening("m"), about: { ...about, name: "q", uid: "v" } }),
    undefined,
    "other objects have their own share",
  );
});

function start(answer: (call: Call) => unknown = () => ({})) {
  const clock = fakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
  const client = fakeClient(answer);
  const recorder = createEventRecorder({
    client,
    clock,
    log: silent,
    component: "kubelet",
    host: "n1",
    qps: 50,
    burst: 100,
  });
  const stop = new AbortController();
  const running = recorder.run(stop.signal);
  return {
    clock,
    client,
    recorder,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}

test("creates a new event in the object's namespace and patches a repeated one", async () => {
  await using t = start();
  t.recorder.event(about, "Normal", "Pulled", "hello");
  t.recorder.event(about, "Normal", "Pulled", "hello");
  await settle();
  const [create, patch] = t.client.calls;
  assert.equal(create?.path, "/api/v1/namespaces/ns/events");
  const event = create?.body as { metadata: { name: string } };
  assert.deepEqual(
    { ...event, metadata: {} },
    {
      apiVersion: "v1",
      kind: "Event",
      metadata: {},
      involvedObject: about,
      type: "Normal",
      reason: "Pulled",
      message: "hello",
      firstTimestamp: "2026-01-02T03:04:05Z",
      lastTimestamp: "2026-01-02T03:04:05Z",
      count: 1,
      source: { component: "kubelet", host: "n1" },
      reportingComponent: "kubelet",
      reportingInstance: "n1",
    },
  );
  assert.equal(patch?.verb, "patch");
  assert.equal(patch?.path, `/api/v1/namespaces/ns/events/${event.metadata.name}`);
  assert.deepEqual(patch?.body, { count: 2, lastTimestamp: "2026-01-02T03:04:05Z", message: "hello" });
});

test("writes a node's events to the default namespace", async () => {
  await using t = start();
  t.recorder.event({ kind: "Node", apiVersion: "v1", name: "n1" }, "Normal", "Starting", "Starting kubelet.");
  await settle();
  assert.equal(t.client.calls[0]?.path, "/api/v1/namespaces/default/events");
});

test("recreates a repeated event that the server has deleted", async () => {
  await using t = start((call) => {
    if (call.verb === "patch") throw apiError(404, "");
    return {};
  });
  t.recorder.event(about, "Normal", "Pulled", "hello");
  t.recorder.event(about, "Normal", "Pulled", "hello");
  await settle();
  assert.deepEqual(
    t.client.calls.map((call) => call.verb),
    ["create", "patch", "create"],
  );
});

test("retries if the server is unreachable, but not if it refuses the event", async () => {
  let down = true;
  await using t = start(() => {
    if (down) throw new CodedError("unavailable", "refused");
    return {};
  });
  t.recorder.event(about, "Normal", "Pulled", "hello");
  await settle();
  await t.clock.advance(1);
  down = false;
  await t.clock.advance(20_000);
  assert.ok(t.client.calls.length >= 2);
  const count = t.client.calls.length;
  await t.clock.advance(60_000);
  assert.equal(t.client.calls.length, count, "recorded once");

  await using refused = start(() => {
    throw apiError(403, "no");
  });
  refused.recorder.event(about, "Normal", "Pulled", "hello");
  await refused.clock.advance(60_000);
  assert.equal(refused.client.calls.length, 1);
});

test("queues at most a thousand events and drops the oldest", async () => {
  const clock = fakeClock();
  const client = fakeClient(() => ({}));
  const recorder = createEventRecorder({
    client,
    clock,
    log: silent,
    component: "kubelet",
    host: "n1",
    qps: 0,
    burst: 0,
  });
  for (let i = 0; i < 1100; i++) recorder.event({ ...about, name: `p${i}`, uid: `u${i}` }, "Normal", "Pulled", "hello");
  const stop = new AbortController();
  const running = recorder.run(stop.signal);
  while (client.calls.length < 1000) await settle();
  await settle();
  stop.abort();
  await running;
  assert.equal(client.calls.length, 1000);
  assert.match(bodyOf<{ metadata: { name: string } }>(client, 0).metadata.name, /^p100\./);
});

test("reports an event to the process before writing it; its annotations are written only to the cluster", () => {
  const calls: unknown[] = [];
  const recorder = {
    name: "events",
    run: async () => {},
    event: (...of: unknown[]) => void calls.push(["written", ...of]),
  };
  const events = reportedEvents(recorder, (...of) => void calls.push(["reported", ...of]));
  events.event(about, "Normal", "Pulled", "m", { a: "b" });
  assert.deepEqual(calls, [
    ["reported", about, "Normal", "Pulled", "m"],
    ["written", about, "Normal", "Pulled", "m", { a: "b" }],
  ]);
  assert.equal(events.run, recorder.run);
});
