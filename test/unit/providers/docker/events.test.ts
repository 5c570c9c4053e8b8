import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { dockerEvents, runtimeEvent } from "../../../../providers/docker/events.ts";
import { createResponseCache } from "../../../../providers/docker/client/response-cache.ts";
import { never } from "../../../fakes/signals.ts";
import { rawEngine } from "./raw-engine.ts";

const sandbox = { "io.kubernetes.docker.type": "podsandbox", "io.kubernetes.pod.uid": "u1" };
const ours = { "graftlet.dev/node": "n1" };
const container = {
  "io.kubernetes.docker.type": "container",
  "io.kubernetes.sandbox.id": "s1",
  "io.kubernetes.pod.uid": "u1",
};

test("an event names its pod and container, and marks an exit", () => {
  assert.deepEqual(runtimeEvent({ Action: "start", Actor: { ID: "s1", Attributes: sandbox } }), {
    kind: "changed",
    sandboxId: "s1",
    podUid: "u1",
  });
  assert.deepEqual(runtimeEvent({ Action: "die", Actor: { ID: "c1", Attributes: container } }), {
    kind: "changed",
    sandboxId: "s1",
    containerId: "c1",
    podUid: "u1",
    exited: true,
  });
  assert.deepEqual(runtimeEvent({ Action: "destroy", Actor: { ID: "c1" } }), {
    kind: "changed",
    containerId: "c1",
    removed: true,
  });
  assert.equal(runtimeEvent({ Action: "exec_die", Actor: { ID: "c1", Attributes: container } }), undefined);
  assert.equal(runtimeEvent({ Action: "die" }), undefined);
});

/** A daemon whose clock is at 12:00:00.5, with scripted responses to /events. */
async function eventEngine() {
  const opened: { readonly query: URLSearchParams; readonly response: ServerResponse }[] = [];
  const engine = await rawEngine(({ path, query, response }) => {
    if (path === "/info") return void response.end('{"SystemTime":"2026-01-01T12:00:00.5Z"}');
    response.flushHeaders();
    opened.push({ query, response });
  });
  return { engine, opened };
}

const line = (Action: string, timeNano: number, Type = "container", node: Readonly<Record<string, string>> = ours) =>
  `${JSON.stringify({ Type, Action, Actor: { ID: "c1", Attributes: { ...container, ...node } }, timeNano })}\n`;

test("yields this node's events after listening, and resumes after a break where it left off", async () => {
  const { engine, opened } = await eventEngine();
  await using _ = engine;
  const events = dockerEvents(engine.parts);
  const first = events(never);
  assert.deepEqual((await first.next()).value, { kind: "listening" });
  const filters: { type: string[]; event: string[] } = JSON.parse(opened[0]?.query.get("filters") ?? "");
  assert.deepEqual(filters.type, ["container", "image", "daemon"]);
  assert.ok(filters.event.includes("die") && !filters.event.some((name) => name.startsWith("exec")));
  assert.equal(opened[0]?.query.get("since"), "1767268800.500000000");
  opened[0]?.response.write(line("start", 1_767_268_801_000_000_000).slice(0, 30));
  opened[0]?.response.write(
    line("start", 1_767_268_801_000_000_000).slice(30) + line("die", 1_767_268_802_000_000_512),
  );
  assert.equal((await first.next()).value?.kind, "changed");
  assert.equal((await first.next()).value?.exited, true);
  opened[0]?.response.destroy();
  await assert.rejects(first.next(), { code: "unavailable" });
  const second = events(never);
  await second.next();
  assert.equal(opened[1]?.query.get("since"), "1767268801.999999512");
  opened[1]?.response.end();
  await assert.rejects(second.next(), { code: "unavailable" }, "an end in good order is a cut too");
});

test("ends the events when the signal aborts", async () => {
  const { engine, opened } = await eventEngine();
  await using _ = engine;
  const stop = new AbortController();
  const events = dockerEvents(engine.parts)(stop.signal);
  await events.next();
  const closed = new Promise((resolve) => opened[0]?.response.on("close", resolve));
  const next = events.next();
  stop.abort();
  assert.deepEqual(await next, { done: true, value: undefined });
  await closed;
});

test("closes the stream when its reader stops, at any point", async () => {
  const { engine, opened } = await eventEngine();
  await using _ = engine;
  for (const takes of [1, 2]) {
    const events = dockerEvents(engine.parts)(never);
    await events.next();
    const response = opened.at(-1)?.response;
    const closed = new Promise((resolve) => response?.on("close", resolve));
    response?.write(line("start", 1));
    if (takes > 1) await events.next();
    await events.return(undefined);
    await closed;
  }
});

test("responses are valid while events flow, until the daemon or its images change", async () => {
  const { engine, opened } = await eventEngine();
  await using _ = engine;
  const { cache } = engine.parts;
  assert.equal(cache.version(), undefined);
  const events = dockerEvents(engine.parts)(never);
  await events.next();
  const { response } = opened[0] ?? assert.fail("nobody listens");
  const [first, second] = [cache.version(), "others"] as const;
  assert.notEqual(first, undefined);
  response.write(line("start", 1, "container", { "graftlet.dev/node": second }) + line("start", 2));
  assert.equal((await events.next()).value?.containerId, "c1");
  assert.equal(cache.version(), first, "containers are told of, and others' are not ours");
  for (const [action, type] of [
    ["pull", "image"],
    ["reload", "daemon"],
  ] as const) {
    const before = cache.version();
    response.write(line(action, 3, type) + line("start", 4));
    await events.next();
    assert.notEqual(cache.version(), before, action);
  }
  response.destroy();
  await assert.rejects(events.next(), { code: "unavailable" });
  assert.equal(cache.version(), undefined);
});

test("caches a response while it is valid", async () => {
  const { start, stop, invalidate, cached } = createResponseCache();
  let asked = 0;
  const ask = cached(async () => (asked += 1));
  const times = async (count: number) => {
    for (let time = 0; time < count; time += 1) await ask(never);
    return asked;
  };
  assert.equal(await times(2), 2, "nothing flows");
  start();
  assert.equal(await times(3), 3);
  invalidate();
  assert.equal(await times(3), 4);
  stop();
  assert.equal(await times(2), 6);
  start();
  assert.equal(await times(2), 7, "what happened meanwhile is not known");
});

test("does not cache a response that was pending during a change", async () => {
  const { start, invalidate, cached } = createResponseCache();
  start();
  const slow = Promise.withResolvers<string>();
  const answers = [slow.promise, Promise.resolve("new")];
  const ask = cached(() => answers.shift() ?? assert.fail("asked too often"));
  const first = ask(never);
  invalidate();
  slow.resolve("old");
  assert.equal(await first, "old");
  assert.equal(await ask(never), "new");
});
