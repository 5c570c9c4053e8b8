import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { Parser } from "yaml";
import { createLogger } from "../../../src/lib/log.ts";
import type { Pod } from "../../../src/objects.ts";
import { createManifestErrors } from "../../../src/sources/manifest-errors.ts";
import { createHttpSource } from "../../../src/sources/http.ts";
import { fakeClock } from "../../fakes/clock.ts";

const pod = (name: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { containers: [{ name: "c", image: "i" }] },
});
const withUid = (name: string) => ({ ...pod(name), metadata: { name, uid: "u-1" } });
const listOf = (...items: readonly object[]) => JSON.stringify({ apiVersion: "v1", kind: "PodList", items });

/** A source for a server controlled by the test. */
async function rig(t: TestContext, user = "") {
  const answer = { status: 200, body: "" };
  const asked: IncomingHttpHeaders[] = [];
  let hang = false;
  const server = createServer((request, response) => {
    asked.push(request.headers);
    if (!hang) response.writeHead(answer.status).end(answer.body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const time = fakeClock();
  const rests = new Set<object>();
  const clock = {
    ...time,
    async sleep(ms: number, signal?: AbortSignal) {
      const rest = {};
      rests.add(rest);
      await time.sleep(ms, signal).finally(() => rests.delete(rest));
    },
  };
  const told: string[] = [];
  const logged: string[] = [];
  const log = createLogger(4, { write: (line) => void logged.push(line) });
  const sets: (readonly Pod[])[] = [];
  const source = createHttpSource({
    url: `http://${user}127.0.0.1:${port}/pods?token=hidden`,
    headers: { "X-Key": ["k1", "k2"] },
    everyMs: 20_000,
    nodeName: "n",
    clock,
    adopt: (found) => found.pod,
    complaints: createManifestErrors({
      nodeName: "n",
      events: { event: (_about, _type, _reason, message) => void told.push(message) },
      log,
    }),
    log,
    set: (pods) => void sets.push(pods),
  });
  const stop = new AbortController();
  let done: Promise<void> | undefined;
  t.after(async () => {
    stop.abort();
    await done;
    server.closeAllConnections();
    server.close();
  });
  /** One more request, completely handled: the source is idle. */
  const look = async (status: number, body: string) => {
    Object.assign(answer, { status, body });
    const before = asked.length;
    if (done) await clock.advance(20_000);
    done ??= source.run(stop.signal);
    while (asked.length === before || rests.size === 0) await new Promise(setImmediate);
    return (sets.at(-1) ?? []).map(({ metadata }) => metadata.name);
  };
  return {
    asked,
    sets,
    told,
    logged,
    look,
    hang: async () => {
      hang = true;
      const before = asked.length;
      await clock.advance(20_000);
      while (asked.length === before) await new Promise(setImmediate);
      await clock.advance(10_000);
      while (told.length === 0) await new Promise(setImmediate);
    },
  };
}

test("reads one pod or a PodList, with the configured headers", async (t) => {
  const { look, asked, sets, told } = await rig(t, "me:s%3Acret@");
  assert.deepEqual(await look(200, JSON.stringify(pod("a"))), ["a-n"]);
  assert.equal(asked[0]?.["x-key"], "k1, k2");
  assert.equal(asked[0]?.authorization, `Basic ${Buffer.from("me:s:cret").toString("base64")}`);
  await look(200, JSON.stringify(pod("a")));
  assert.equal(sets.length, 1, "the same answer again says nothing");
  const parse = t.mock.method(Parser.prototype, "parse");
  assert.deepEqual(await look(200, listOf(pod("a"), pod("b"))), ["a-n", "b-n"]);
  assert.equal(parse.mock.callCount(), 0, "JSON is not read as YAML, which takes long");
  assert.deepEqual(await look(200, "{apiVersion: v1, kind: PodList}"), [], "YAML may begin like JSON");
  assert.deepEqual(await look(200, listOf()), []);
  assert.deepEqual(told, []);
});

test("an unusable response changes nothing and is reported once, without secrets of the URL", async (t) => {
  const { look, told, logged } = await rig(t, "me:secret@");
  const parse = t.mock.method(Parser.prototype, "parse");
  await look(200, JSON.stringify(pod("a")));
  for (const [status, body, why] of [
    [500, "", "it responds with status 500 instead of 200"],
    [200, "a: [", "it is not YAML"],
    [200, JSON.stringify({ ...pod("a"), kind: "Secret" }), 'its kind is "Secret"'],
    [200, listOf(pod("b"), { ...pod("c"), spec: {} }), "items[1] of its PodList: spec.containers: is empty"],
    [200, JSON.stringify({ ...pod("b"), x: "x".repeat(1 << 20) }), "the response is longer than 1048576 bytes"],
    [
      200,
      listOf(withUid("b"), withUid("c")),
      "items[1] of its PodList: another pod in the list has the same metadata.uid",
    ],
  ] as const) {
    told.length = 0;
    assert.deepEqual(await look(status, body), ["a-n"], why);
    assert.ok(told[0]?.includes(`/pods is ignored: ${why}`), told.join());
    const parsed = parse.mock.callCount();
    await look(status, body);
    assert.equal(told.length, 1, why);
    assert.equal(parse.mock.callCount(), parsed, "the same answer again is not taken apart again");
  }
  assert.ok(!/secret|hidden|k1/.test(logged.join()));
});

test("an empty response removes all pods, once; the same pods may come back", async (t) => {
  const { look, sets, told } = await rig(t);
  const body = JSON.stringify(pod("a"));
  await look(200, body);
  assert.deepEqual(await look(200, ""), []);
  await look(200, "");
  assert.equal(sets.length, 2);
  assert.match(told[0] ?? "", /the response is empty/);
  assert.deepEqual(await look(200, body), ["a-n"]);
});

test("times out after ten seconds", async (t) => {
  const { look, hang, told } = await rig(t);
  await look(200, JSON.stringify(pod("a")));
  await hang();
  assert.match(told[0] ?? "", /no answer within 10000 ms/);
});
